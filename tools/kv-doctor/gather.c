/*
 * What a machine is, from its files. gather_rdma.c has the adapters.
 *
 * All that is asked of the kernel is asked by files, so that a copy of them tells the same of
 * another machine. Two things have none: who may open a file (this machine's kernel knows, with
 * access lists and all; of a copy it is computed from owner and mode), and the rules of a firewall.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor.h"
#include "fabric/shm_directory.h"

#define CAP_DAC_OVERRIDE_BIT 1

/* ------------------------------------------------------------------------------------------
 * Modules
 */

/* Modules' names are written with either mark; the kernel's own lists mix them. */
static bool same_module(const char *text, const char *name, size_t length)
{
	for (size_t i = 0; i < length; i++) {
		char c = text[i] == '-' ? '_' : text[i];

		if (c != name[i] || !name[i])
			return false;
	}
	return !name[length];
}

/* Whether a list of paths, "kernel/net/x/name.ko.xz:...", has the module. */
static bool has_path_of(const char *list, const char *name)
{
	for (const char *line = list; line && *line;) {
		size_t length = strcspn(line, ":\n");
		const char *base = line, *end;

		for (size_t i = 0; i < length; i++)
			if (line[i] == '/')
				base = line + i + 1;
		end = memmem(base, (size_t)(line + length - base), ".ko", 3);
		if (end && same_module(base, name, (size_t)(end - base)))
			return true;
		line += strcspn(line, "\n");
		line += *line == '\n';
	}
	return false;
}

/* Whether /proc/modules has it: its lines begin with names. */
static bool has_line_of(const char *list, const char *name)
{
	for (const char *line = list; line && *line;) {
		if (same_module(line, name, strcspn(line, " \n")))
			return true;
		line += strcspn(line, "\n");
		line += *line == '\n';
	}
	return false;
}

/* A module in the kernel itself need not be in any list, but what it makes is there. */
static bool left_a_trace(const struct machine *machine, const char *name)
{
	static const struct {
		const char *module, *trace;
	} traces[] = {
		{"ib_core", "/sys/class/infiniband"},
		{"ib_uverbs", "/sys/class/infiniband_verbs"},
		{"rdma_cm", "/sys/class/misc/rdma_cm"},
		{"rdma_ucm", "/sys/class/misc/rdma_cm"},
	};
	char path[FILE_PATH];

	for (size_t i = 0; i < sizeof(traces) / sizeof(traces[0]); i++)
		if (strcmp(traces[i].module, name) == 0 &&
		    file_exists(machine->root, traces[i].trace))
			return true;
	file_name(path, "/sys/module/%s", name);
	return file_exists(machine->root, path);
}

enum presence module_presence(const struct machine *machine, const char *name)
{
	if (has_line_of(machine->loaded, name))
		return MODULE_LOADED;
	if (has_path_of(machine->built_in, name))
		return MODULE_BUILT_IN;
	if (left_a_trace(machine, name))
		return machine->loaded ? MODULE_BUILT_IN : MODULE_LOADED;
	if (has_path_of(machine->loadable, name))
		return MODULE_LOADABLE;
	return machine->loadable ? MODULE_ABSENT : MODULE_UNKNOWN;
}

static void gather_modules(struct machine *machine)
{
	char path[FILE_PATH];

	file_read(machine->root, "/proc/sys/kernel/osrelease", machine->kernel,
		  sizeof(machine->kernel));
	machine->loaded = file_load(machine->root, "/proc/modules");
	file_name(path, "/lib/modules/%s/modules.builtin", machine->kernel);
	machine->built_in = file_load(machine->root, path);
	file_name(path, "/lib/modules/%s/modules.dep", machine->kernel);
	machine->loadable = file_load(machine->root, path);
}

/* ------------------------------------------------------------------------------------------
 * This process
 */

/* Copies what stands behind a name in "Name: words" lines; "" when there is none. */
static void find_line(const char *text, const char *name, char *to, size_t size)
{
	const char *at = text;
	size_t length = strlen(name);

	to[0] = '\0';
	while (at && *at) {
		if (strncmp(at, name, length) == 0) {
			at += length;
			at += strspn(at, ": \t");
			snprintf(to, size, "%.*s", (int)strcspn(at, "\n"), at);
			return;
		}
		at += strcspn(at, "\n");
		at += *at == '\n';
	}
}

static void gather_process(struct machine *machine)
{
	char *limits = file_load(machine->root, "/proc/self/limits");
	char *status = file_load(machine->root, "/proc/self/status");
	char line[512];

	find_line(limits, "Max locked memory", line, sizeof(line));
	machine->memlock = UINT64_MAX;
	if (line[0] >= '0' && line[0] <= '9')
		machine->memlock = strtoull(line, NULL, 10);
	find_line(status, "CapEff", line, sizeof(line));
	machine->capabilities = strtoull(line, NULL, 16);
	find_line(status, "Uid", line, sizeof(line));
	(void)sscanf(line, "%*u %u", &machine->user);
	find_line(status, "Gid", line, sizeof(line));
	(void)sscanf(line, "%*u %u", &machine->group);
	find_line(status, "Groups", line, sizeof(line) - 2);
	snprintf(machine->groups, sizeof(machine->groups), " %.500s ", line);
	find_line(status, "Mems_allowed_list", machine->memories, sizeof(machine->memories));
	free(limits);
	free(status);
}

static bool is_in_group(const struct machine *machine, unsigned group)
{
	char text[24];

	snprintf(text, sizeof(text), " %u ", group);
	return machine->group == group || strstr(machine->groups, text);
}

enum access machine_access(const struct machine *machine, const char *name)
{
	struct stat stat;
	unsigned bits;

	if (!file_stat(machine->root, name, &stat))
		return ACCESS_MISSING;
	if (machine->is_live)
		return euidaccess(name, R_OK | W_OK) == 0 ? ACCESS_GRANTED : ACCESS_DENIED;
	if (machine->capabilities & (1u << CAP_DAC_OVERRIDE_BIT))
		return ACCESS_GRANTED;
	if (machine->user == stat.st_uid)
		bits = stat.st_mode >> 6;
	else if (is_in_group(machine, stat.st_gid))
		bits = stat.st_mode >> 3;
	else
		bits = stat.st_mode;
	return (bits & 06) == 06 ? ACCESS_GRANTED : ACCESS_DENIED;
}

/* ------------------------------------------------------------------------------------------
 * Memory
 */

/* The word in brackets: "always [madvise] never". */
static void read_choice(const struct machine *machine, const char *name, char to[16])
{
	char text[128];
	const char *open;

	file_read(machine->root, name, text, sizeof(text));
	open = strchr(text, '[');
	snprintf(to, 16, "%.*s", open ? (int)strcspn(open + 1, "]") : 0, open ? open + 1 : "");
}

static void gather_memory(struct machine *machine)
{
	static const char directory[] = "/sys/kernel/mm/hugepages/hugepages-2048kB";
	char path[FILE_PATH], text[64];

	file_name(path, "%s/nr_hugepages", directory);
	machine->has_huge = file_read(machine->root, path, text, sizeof(text));
	machine->huge_total = strtoull(text, NULL, 10);
	file_name(path, "%s/free_hugepages", directory);
	file_read(machine->root, path, text, sizeof(text));
	machine->huge_free = strtoull(text, NULL, 10);
	read_choice(machine, "/sys/kernel/mm/transparent_hugepage/enabled", machine->transparent);
	read_choice(machine, "/sys/kernel/mm/transparent_hugepage/shmem_enabled",
		    machine->transparent_shared);
}

/* A node's file has a number for each node that is online, in their order. */
static void gather_nodes(struct machine *machine)
{
	char names[MAX_NODES * 4][FILE_NAME], path[FILE_PATH], text[512];
	int count = file_list(machine->root, "/sys/devices/system/node", names, MAX_NODES * 4);
	int numbers[MAX_NODES], online = 0;

	for (int i = 0; i < count && online < MAX_NODES; i++)
		if (sscanf(names[i], "node%d", &numbers[online]) == 1)
			online++;
	for (int i = 0; i < online; i++) {
		char *at = text;

		machine->nodes[i] = numbers[i];
		file_name(path, "/sys/devices/system/node/node%d/distance", numbers[i]);
		file_read(machine->root, path, text, sizeof(text));
		for (int k = 0; k < online; k++)
			machine->distances[i][k] = (int)strtol(at, &at, 10);
	}
	machine->node_count = online;
}

/* ------------------------------------------------------------------------------------------
 * Libraries and directories
 */

static bool has_library(const struct machine *machine, const char *maps, const char *name)
{
	static const char *const places[] = {"/usr/lib/*/", "/usr/lib*/", "/lib/*/", "/lib*/",
					     "/usr/local/lib*/"};
	char pattern[FILE_PATH];

	/* One that this very program uses is there, wherever it lies. */
	if (maps && strstr(maps, name))
		return true;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		file_name(pattern, "%s%s", places[i], name);
		if (file_matches(machine->root, pattern))
			return true;
	}
	return false;
}

static void gather_libraries(struct machine *machine)
{
	char *maps = file_load(machine->root, "/proc/self/maps");

	machine->has_libibverbs = has_library(machine, maps, "libibverbs.so.1");
	machine->has_librdmacm = has_library(machine, maps, "librdmacm.so.1");
	machine->has_libfabric = has_library(machine, maps, "libfabric.so.1");
	free(maps);
	for (int i = 0; i < machine->adapter_count; i++) {
		struct adapter *adapter = &machine->adapters[i];
		char name[FILE_PATH];

		if (!adapter->driver) /* which one it needs is not known: do not complain */
			adapter->has_library = true;
		else {
			file_name(name, "libibverbs/lib%s-rdmav*.so", adapter->driver->library);
			adapter->has_library = has_library(machine, NULL, name);
		}
	}
}

static void gather_shm(struct machine *machine)
{
	bool callers_only;

	if (!machine->is_live)
		snprintf(machine->shm_directory, sizeof(machine->shm_directory), "/run/remora");
	else if (!shm_directory_at(0, machine->shm_directory, sizeof(machine->shm_directory),
				   &callers_only))
		machine->shm_directory[0] = '\0';
	machine->has_shm_directory =
		file_stat(machine->root, machine->shm_directory, &machine->shm_stat);
	if (machine->is_live && machine->has_shm_directory)
		machine->shm_stale =
			shm_directory_stale(machine->shm_directory, false, machine->shm_stale_first,
					    sizeof(machine->shm_stale_first));
}

void machine_gather(struct machine *machine, const char *root)
{
	*machine = (struct machine){.root = root, .is_live = !*root};
	gather_modules(machine);
	gather_process(machine);
	gather_memory(machine);
	gather_nodes(machine);
	gather_rdma(machine);
	gather_libraries(machine);
	gather_shm(machine);
	firewall_gather(machine);
}

void machine_free(struct machine *machine)
{
	free(machine->loaded);
	free(machine->built_in);
	free(machine->loadable);
	free(machine->nft);
	free(machine->iptables);
}
