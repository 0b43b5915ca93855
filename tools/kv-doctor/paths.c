/*
 * Which paths work, and which one clients would take: the order is that of CONN_MODE_AUTO, shared
 * memory on this host, then verbs, then TCP.
 */
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
	bool verbs = want == PATH_VERBS || want == PATH_SOCKET;

	if (want == PATH_AUTO || strcmp(finding->group, "Server") == 0)
		return true;
	if (strncmp(finding->check, "shm", 3) == 0)
		return want == PATH_SHM;
	if (strncmp(finding->check, "tcp", 3) == 0)
		return want == PATH_TCP;
	return verbs;
}

/* The fix of the first failure that has one; an adapter's before the modules that it would need. */
static void take_fix(const struct report *report, enum path want, char *fix, size_t size)
{
	fix[0] = '\0';
	for (size_t i = 0; i < report->count && want != PATH_SHM && want != PATH_TCP; i++) {
		const struct finding *finding = &report->findings[i];

		if (strcmp(finding->group, "Adapters") == 0 && finding->verdict == VERDICT_FAIL) {
			snprintf(fix, size, "%s", finding->fix);
			return;
		}
	}
	for (size_t i = 0; i < report->count; i++) {
		const struct finding *finding = &report->findings[i];

		if (finding->verdict == VERDICT_FAIL && finding->fix[0] &&
		    concerns(finding, want)) {
			snprintf(fix, size, "%s", finding->fix);
			return;
		}
	}
}

static void add_verdict(struct report *report, enum path want, bool works_out, const char *text)
{
	struct finding *finding;
	char fix[400];

	take_fix(report, want, fix, sizeof(fix));
	finding = report_add(report, GROUP, "path", works_out ? VERDICT_OK : VERDICT_FAIL, "%s",
			     text);
	if (!works_out)
		report_fix(finding, "%s", fix);
}

/* The first clause is why; what to do about it has been said above. */
static const char *shorten(const char *reason, char *to, size_t size)
{
	const char *end = strstr(reason, "; ");

	snprintf(to, size, "%.*s", end ? (int)(end - reason) : (int)strlen(reason), reason);
	return to;
}

/* What clients of this machine take, and why nothing better. */
static int describe(const struct outcomes *outcomes, char *text, size_t size)
{
	bool shm = works(outcomes, PATH_SHM), verbs = works(outcomes, PATH_VERBS),
	     tcp = works(outcomes, PATH_TCP);
	const char *far = verbs ? find(outcomes, PATH_VERBS)->device : "tcp";
	char why_verbs[160], why_shm[160];

	shorten(why_not(outcomes, PATH_VERBS), why_verbs, sizeof(why_verbs));
	shorten(why_not(outcomes, PATH_SHM), why_shm, sizeof(why_shm));

	if (!shm && !verbs && !tcp)
		return snprintf(text, size, "clients here have no path to any server");
	if (!verbs && !tcp)
		return snprintf(text, size,
				"clients here take shm to servers on this host, and have no path "
				"to others (tcp: %s)",
				why_not(outcomes, PATH_TCP));
	return snprintf(text, size,
			"clients here take %s to servers on this host%s%s%s, and %s to "
			"others%s%s%s",
			shm ? "shm" : far, shm ? "" : " (shm: ", shm ? "" : why_shm, shm ? "" : ")",
			far, verbs ? "" : " (verbs: ", verbs ? "" : why_verbs, verbs ? "" : ")");
}

bool outcomes_judge(const struct outcomes *outcomes, const struct config *config,
		    struct report *report)
{
	char text[640], why[400];
	size_t used = 0;
	bool good;

	if (config->want == PATH_AUTO) {
		good = works(outcomes, PATH_SHM) || works(outcomes, PATH_VERBS) ||
		       works(outcomes, PATH_TCP);
	} else {
		const char *name = path_names[config->want];

		good = works(outcomes, config->want);
		if (!good) {
			snprintf(text, sizeof(text), "%s, the wanted path, does not work: %s", name,
				 shorten(why_not(outcomes, config->want), why, sizeof(why)));
			add_verdict(report, config->want, false, text);
			return false;
		}
		used = (size_t)snprintf(text, sizeof(text), "%s, the wanted path, works; ", name);
	}
	describe(outcomes, text + used, sizeof(text) - used);
	add_verdict(report, config->want, good, text);
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
	add_verdict(report, config->want, good, text);
	return good;
}
