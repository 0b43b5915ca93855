/*
 * Which paths work, and which one clients would take: the order is that of CONN_MODE_AUTO, shared
 * memory on this host, then verbs, then TCP.
 */
#include <stdarg.h>
#include <string.h>

#include "doctor.h"
#include "fabric/shm_directory.h"

#define GROUP "Verdict"

struct outcome *outcome_add(struct outcomes *outcomes, enum path path, const char *device)
{
	struct outcome *outcome;

	if (outcomes->count == MAX_OUTCOMES)
		return NULL;
	outcome = &outcomes->list[outcomes->count++];
	*outcome = (struct outcome){.path = path};
	snprintf(outcome->device, sizeof(outcome->device), "%s", device);
	return outcome;
}

void outcomes_from_files(const struct machine *machine, struct outcomes *outcomes)
{
	struct outcome *outcome = outcome_add(outcomes, PATH_SHM, "shm");
	const char *fault = machine->has_shm_directory
				    ? shm_directory_fault(&machine->shm_stat, machine->user)
				    : NULL;

	outcome->works = !fault;
	if (fault)
		snprintf(outcome->reason, sizeof(outcome->reason), "%s%s", machine->shm_directory,
			 fault);
	outcome = outcome_add(outcomes, PATH_TCP, "tcp");
	outcome->works = true;
	if (machine->adapter_count == 0) {
		outcome = outcome_add(outcomes, PATH_VERBS, "verbs");
		snprintf(outcome->reason, sizeof(outcome->reason), "there is no adapter");
	}
	for (int i = 0; i < machine->adapter_count; i++) {
		const struct adapter *adapter = &machine->adapters[i];
		char device[64], reason[512] = "";
		bool broken = adapter_is_broken(machine, adapter, reason, sizeof(reason));

		snprintf(device, sizeof(device), "verbs:%.40s", adapter->name);
		outcome = outcome_add(outcomes, PATH_VERBS, device);
		if (!outcome)
			return;
		outcome->works = !broken && machine->cm == ACCESS_GRANTED;
		snprintf(outcome->reason, sizeof(outcome->reason), "%s",
			 broken ? reason : "no RDMA CM: modprobe rdma_ucm");
		snprintf(device, sizeof(device), "verbs:%.40s,socket", adapter->name);
		outcome = outcome_add(outcomes, PATH_SOCKET, device);
		if (!outcome)
			return;
		outcome->works = !broken;
		snprintf(outcome->reason, sizeof(outcome->reason), "%s", reason);
	}
}

/* The first outcome of a path that works; else the first of it; else NULL. */
static const struct outcome *find(const struct outcomes *outcomes, enum path path)
{
	const struct outcome *found = NULL;

	for (int i = 0; i < outcomes->count; i++) {
		const struct outcome *outcome = &outcomes->list[i];

		if (outcome->path == path && (!found || (outcome->works && !found->works)))
			found = outcome;
	}
	return found;
}

static bool works(const struct outcomes *outcomes, enum path path)
{
	const struct outcome *found = find(outcomes, path);

	return found && found->works;
}

/* Why a path does not work. Without an adapter there is no outcome by socket. */
static const char *why_not(const struct outcomes *outcomes, enum path path)
{
	const struct outcome *found = find(outcomes, path);

	if (!found && path == PATH_SOCKET)
		found = find(outcomes, PATH_VERBS);
	return found && found->reason[0] ? found->reason : "it was not found";
}

/* Whether a failure could be why the path does not work. */
static bool concerns(const struct finding *finding, enum path want)
{
	if (finding->verdict != VERDICT_FAIL || !finding->fix[0])
		return false;
	if (want == PATH_AUTO)
		return true;
	if (strncmp(finding->check, "shm", 3) == 0)
		return want == PATH_SHM;
	if (strncmp(finding->check, "tcp", 3) == 0)
		return want == PATH_TCP;
	if (strncmp(finding->check, "ofi", 3) == 0 || strcmp(finding->check, "libfabric") == 0)
		return want == PATH_OFI;
	return want == PATH_VERBS || want == PATH_SOCKET;
}

/* The first failure that could be why: of this group, if it has one. */
static const struct finding *find_failure(const struct report *report, enum path want,
					  const char *group)
{
	const struct finding *found = NULL;

	for (size_t i = 0; i < report->count; i++) {
		const struct finding *finding = &report->findings[i];

		if (!concerns(finding, want))
			continue;
		if (strcmp(finding->group, group) == 0)
			return finding;
		if (!found)
			found = finding;
	}
	return found;
}

/* What failed in `group` comes first: an adapter's failure before that of the modules it would
 * need, and a server's before all that is this machine's. */
static void add_verdict(struct report *report, enum path want, bool works_out, const char *group,
			const char *text)
{
	const struct finding *failure = find_failure(report, want, group);
	struct finding *finding;
	char fix[sizeof(finding->fix)] = "";

	if (failure && !works_out)
		memcpy(fix, failure->fix, sizeof(fix));
	finding = report_add(report, GROUP, "path", works_out ? VERDICT_OK : VERDICT_FAIL, "%s",
			     text);
	report_fix(finding, "%s", fix);
}

int clause_length(const char *reason)
{
	const char *end = strstr(reason, "; ");

	return end ? (int)(end - reason) : (int)strlen(reason);
}

__attribute__((format(printf, 3, 4))) static void append(char *text, size_t size,
							 const char *format, ...)
{
	size_t length = strlen(text);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text + length, size - length, format, arguments);
	va_end(arguments);
}

/* " (verbs: there is no adapter)", if it does not work. */
static void append_why(char *text, size_t size, const struct outcomes *outcomes, enum path path)
{
	const char *reason = why_not(outcomes, path);

	if (!works(outcomes, path))
		append(text, size, " (%s: %.*s)", path_names[path], clause_length(reason), reason);
}

/* What clients of this machine take, and why nothing better. */
static void describe(const struct outcomes *outcomes, char *text, size_t size)
{
	bool verbs = works(outcomes, PATH_VERBS), tcp = works(outcomes, PATH_TCP);
	const char *far = verbs ? find(outcomes, PATH_VERBS)->device : tcp ? "tcp" : "no path";

	append(text, size, "clients here take %s to servers on this host",
	       works(outcomes, PATH_SHM) ? "shm" : far);
	append_why(text, size, outcomes, PATH_SHM);
	append(text, size, ", and %s to others", far);
	append_why(text, size, outcomes, PATH_VERBS);
	if (!verbs)
		append_why(text, size, outcomes, PATH_TCP);
}

bool outcomes_judge(const struct outcomes *outcomes, const struct config *config,
		    struct report *report)
{
	const char *name = path_names[config->want], *group = "Adapters";
	char text[640] = "";
	bool good;

	if (config->want == PATH_AUTO) {
		good = works(outcomes, PATH_SHM) || works(outcomes, PATH_VERBS) ||
		       works(outcomes, PATH_TCP);
	} else {
		const char *reason = why_not(outcomes, config->want);

		good = works(outcomes, config->want);
		/* A program that was built without verbs needs no adapter first. */
		if (strncmp(reason, "this build", 10) == 0)
			group = "Transfers";
		if (!good)
			append(text, sizeof(text), "%s, the wanted path, does not work: %.*s", name,
			       clause_length(reason), reason);
		else
			append(text, sizeof(text), "%s, the wanted path, works; ", name);
	}
	if (good || config->want == PATH_AUTO)
		describe(outcomes, text, sizeof(text));
	add_verdict(report, config->want, good, group, text);
	return good;
}

bool outcomes_judge_server(const struct outcomes *outcomes, const struct config *config,
			   const char *chosen, struct report *report)
{
	bool good = config->want == PATH_AUTO ? chosen[0] != '\0' : works(outcomes, config->want);
	char text[640];

	if (config->want != PATH_AUTO)
		snprintf(text, sizeof(text), "%s, the wanted path, %s%.400s",
			 path_names[config->want],
			 good ? "reaches the server" : "does not reach the server: ",
			 good ? "" : why_not(outcomes, config->want));
	else if (good)
		snprintf(text, sizeof(text), "clients here reach the server by %.500s", chosen);
	else
		snprintf(text, sizeof(text), "clients here do not reach the server at all");
	add_verdict(report, PATH_AUTO, good, "Server", text);
	return good;
}
