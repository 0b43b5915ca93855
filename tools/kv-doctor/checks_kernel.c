/*
 * Checks of what RDMA needs from the system: modules, libraries, permissions; and of the directory
 * of sockets. Pure.
 *
 * Where a machine has no adapter and nobody asked for verbs there is nothing to put right: then it
 * is said once that all this is not applicable.
 */
#include <string.h>

#include "doctor.h"
#include "fabric/shm_directory.h"

#define KERNEL	    "Kernel"
#define LIBRARIES   "Libraries"
#define PERMISSIONS "Permissions"

bool rdma_matters(const struct machine *machine, enum path want)
{
	return machine->adapter_count > 0 || want == PATH_VERBS || want == PATH_SOCKET;
}

static bool is_in_kernel(enum presence presence)
{
	return presence == MODULE_LOADED || presence == MODULE_BUILT_IN;
}

static const char *presence_text(enum presence presence)
{
	return presence == MODULE_LOADED ? "loaded" : "built into the kernel";
}

/* ------------------------------------------------------------------------------------------
 * Modules
 */

static void add_missing_module(const struct machine *machine, const char *name, const char *needed,
			       enum presence presence, enum verdict verdict, struct report *report)
{
	struct finding *finding;
	bool absent = presence == MODULE_ABSENT;

	finding = report_add(report, KERNEL, name, verdict, "%s, and %s",
			     absent ? "this kernel does not have it" : "not loaded", needed);
	if (absent)
		report_fix(finding,
			   "apt-get install linux-image-amd64 # a kernel that has %s; this "
			   "is %s",
			   name, machine->kernel[0] ? machine->kernel : "unknown");
	else
		report_fix(finding, "modprobe %s", name);
}

static void check_core_modules(const struct machine *machine, enum path want, struct report *report)
{
	static const struct {
		const char *name, *needed;
		bool for_cm;
	} modules[] = {
		{"ib_core", "all RDMA needs it", false},
		{"ib_uverbs", "without it programs have no verbs", false},
		{"rdma_cm", "RDMA CM needs it", true},
		{"rdma_ucm", "without it programs have no RDMA CM", true},
	};

	for (size_t i = 0; i < sizeof(modules) / sizeof(modules[0]); i++) {
		enum presence presence = module_presence(machine, modules[i].name);

		if (is_in_kernel(presence))
			report_add(report, KERNEL, modules[i].name, VERDICT_OK, "%s",
				   presence_text(presence));
		else
			add_missing_module(machine, modules[i].name, modules[i].needed, presence,
					   modules[i].for_cm && want == PATH_SOCKET ? VERDICT_WARN
										    : VERDICT_FAIL,
					   report);
	}
}

/* A card that this driver would make an adapter; NULL: none. */
static const struct card *card_for(const struct machine *machine, const struct driver *driver)
{
	for (int i = 0; i < machine->card_count; i++)
		if (machine->cards[i].driver == driver)
			return &machine->cards[i];
	return NULL;
}

static void check_drivers(const struct machine *machine, enum path want, struct report *report)
{
	char missing[256] = "";
	size_t used = 0;
	bool any = false;

	for (const struct driver *driver = drivers; driver->module; driver++) {
		enum presence presence = module_presence(machine, driver->module);
		const struct card *card = card_for(machine, driver);
		char needed[128];

		if (is_in_kernel(presence)) {
			report_add(report, KERNEL, driver->module, VERDICT_OK, "%s",
				   presence_text(presence));
			any = true;
		} else if (card) {
			snprintf(needed, sizeof(needed), "the card at %s would be an adapter by it",
				 card->slot);
			add_missing_module(machine, driver->module, needed, presence,
					   want == PATH_VERBS || want == PATH_SOCKET ? VERDICT_FAIL
										     : VERDICT_WARN,
					   report);
		} else if (used < sizeof(missing)) {
			used += (size_t)snprintf(missing + used, sizeof(missing) - used, "%s%s",
						 used ? ", " : "", driver->module);
		}
	}
	if (used)
		report_add(report, KERNEL, any ? "other drivers" : "drivers", VERDICT_NONE,
			   "not loaded, and no card here asks for them: %s", missing);
}

void check_modules(const struct machine *machine, enum path want, struct report *report)
{
	if (rdma_matters(machine, want))
		check_core_modules(machine, want, report);
	else
		report_add(report, KERNEL, "RDMA modules", VERDICT_NONE,
			   "there is no adapter, and shm and tcp need none of them");
	check_drivers(machine, want, report);
}

/* ------------------------------------------------------------------------------------------
 * Libraries
 */

static void check_library(bool is_there, enum verdict otherwise, const char *name,
			  const char *package, struct report *report)
{
	struct finding *finding;

	if (is_there) {
		report_add(report, LIBRARIES, name, VERDICT_OK, "installed (package %s)", package);
		return;
	}
	finding = report_add(report, LIBRARIES, name, otherwise,
			     "not installed; it is in the "
			     "package %s",
			     package);
	if (otherwise != VERDICT_NONE)
		report_fix(finding, "apt-get install %s", package);
}

void check_libraries(const struct machine *machine, enum path want, struct report *report)
{
	bool matters = rdma_matters(machine, want);
	enum verdict otherwise = matters ? VERDICT_FAIL : VERDICT_NONE;

	check_library(machine->has_libibverbs, otherwise, "libibverbs", "libibverbs1", report);
	check_library(machine->has_librdmacm, otherwise, "librdmacm", "librdmacm1", report);
	for (int i = 0; i < machine->adapter_count; i++) {
		const struct adapter *adapter = &machine->adapters[i];
		char name[96];

		if (!adapter->driver)
			continue;
		snprintf(name, sizeof(name), "lib%s for %.32s", adapter->driver->library,
			 adapter->name);
		check_library(adapter->has_library, VERDICT_FAIL, name, "ibverbs-providers",
			      report);
	}
	check_library(machine->has_libfabric, want == PATH_OFI ? VERDICT_FAIL : VERDICT_NONE,
		      "libfabric", "libfabric1", report);
}

/* ------------------------------------------------------------------------------------------
 * Permissions
 */

static void check_file(const char *check, const char *name, enum access access, const char *module,
		       enum verdict otherwise, struct report *report)
{
	struct finding *finding;

	if (access == ACCESS_GRANTED) {
		report_add(report, PERMISSIONS, check, VERDICT_OK, "this user may use it");
	} else if (access == ACCESS_DENIED) {
		finding = report_add(report, PERMISSIONS, check, otherwise,
				     "%s must be readable and writable for this user", name);
		report_fix(finding, "chmod 0666 %s # for good: a udev rule", name);
	} else {
		finding = report_add(report, PERMISSIONS, check, otherwise,
				     "there is no %s; in a container give it with "
				     "--device=/dev/infiniband",
				     name);
		report_fix(finding, "modprobe %s", module);
	}
}

static void check_shm_directory(const struct machine *machine, struct report *report)
{
	const char *directory = machine->shm_directory, *fault;
	struct finding *finding;

	if (!machine->has_shm_directory) {
		report_add(report, PERMISSIONS, "shm sockets", VERDICT_OK,
			   "%s is not there yet; the first server makes it", directory);
		return;
	}
	fault = shm_directory_fault(&machine->shm_stat, machine->user);
	if (!fault && machine->shm_stale) {
		finding = report_add(report, PERMISSIONS, "shm sockets", VERDICT_WARN,
				     "%u in %s of servers that were killed, such as %s; the next "
				     "server that starts here removes them",
				     machine->shm_stale, directory, machine->shm_stale_first);
		report_fix(finding, "rm -f %s %s.lock", machine->shm_stale_first,
			   machine->shm_stale_first);
		return;
	}
	if (!fault) {
		report_add(report, PERMISSIONS, "shm sockets", VERDICT_OK,
			   "they lie in %s, where only its owner can put them", directory);
		return;
	}
	finding = report_add(report, PERMISSIONS, "shm sockets", VERDICT_FAIL, "%s%s", directory,
			     fault);
	if (strstr(fault, "chmod"))
		report_fix(finding, "chmod go-w %s", directory);
	else
		report_fix(finding, "export REMORA_SHM_DIR=$HOME/.remora; "
				    "mkdir -m 700 -p \"$REMORA_SHM_DIR\"");
}

void check_permissions(const struct machine *machine, enum path want, struct report *report)
{
	for (int i = 0; i < machine->adapter_count; i++) {
		const struct adapter *adapter = &machine->adapters[i];
		char check[48], name[128];

		snprintf(check, sizeof(check), "uverbs of %.32s", adapter->name);
		snprintf(name, sizeof(name), "/dev/infiniband/%s",
			 adapter->uverbs[0] ? adapter->uverbs : "uverbs*");
		check_file(check, name, adapter->access, "ib_uverbs", VERDICT_FAIL, report);
	}
	if (rdma_matters(machine, want))
		check_file("rdma_cm", "/dev/infiniband/rdma_cm", machine->cm, "rdma_ucm",
			   want == PATH_SOCKET ? VERDICT_WARN : VERDICT_FAIL, report);
	check_shm_directory(machine, report);
}
