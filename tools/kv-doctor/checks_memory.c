/* Checks of memory: what may be locked, and huge pages. Pure. */
#include <inttypes.h>
#include <string.h>

#include "base/size.h"
#include "doctor.h"

#define GROUP "Memory"

#define CAP_IPC_LOCK_BIT 14

bool memlock_is_unlimited(const struct machine *machine)
{
	return machine->memlock == UINT64_MAX ||
	       (machine->capabilities & (UINT64_C(1) << CAP_IPC_LOCK_BIT));
}

static void check_memlock(const struct machine *machine, enum path want, struct report *report)
{
	struct finding *finding;
	char size[SIZE_TEXT_LENGTH];
	enum verdict verdict;

	size_format(machine->memlock, size);
	if (memlock_is_unlimited(machine)) {
		report_add(report, GROUP, "locked memory", VERDICT_OK, "no limit%s",
			   machine->memlock == UINT64_MAX ? "" : " for this user's privileges");
		return;
	}
	if (!rdma_matters(machine, want)) {
		report_add(report, GROUP, "locked memory", VERDICT_NONE,
			   "at most %s; only verbs lock memory", size);
		return;
	}
	if (machine->memlock >= MEMLOCK_ROOM) {
		report_add(report, GROUP, "locked memory", VERDICT_OK,
			   "at most %s; a server by verbs locks all of its memory", size);
		return;
	}
	verdict = machine->memlock < MEMLOCK_LEAST ? VERDICT_FAIL : VERDICT_WARN;
	finding =
		report_add(report, GROUP, "locked memory", verdict,
			   verdict == VERDICT_FAIL
				   ? "at most %s: too little for any connection by verbs"
				   : "at most %s: enough for clients by verbs, but a server locks "
				     "all of its memory",
			   size);
	report_fix(finding, "echo '* - memlock unlimited' > /etc/security/limits.d/remora.conf "
			    "# then log in again; LimitMEMLOCK=infinity in a systemd unit, "
			    "--ulimit memlock=-1 of a container");
}

static void check_huge_pages(const struct machine *machine, struct report *report)
{
	struct finding *finding;
	char size[SIZE_TEXT_LENGTH];

	if (!machine->has_huge) {
		report_add(report, GROUP, "huge pages", VERDICT_NONE,
			   "this kernel has none of 2 MiB");
		return;
	}
	size_format(machine->huge_free << 21, size);
	if (machine->huge_free) {
		report_add(report, GROUP, "huge pages", VERDICT_OK,
			   "%" PRIu64 " of %" PRIu64 " are free, %s", machine->huge_free,
			   machine->huge_total, size);
		return;
	}
	if (machine->huge_total)
		finding = report_add(report, GROUP, "huge pages", VERDICT_WARN,
				     "all %" PRIu64 " are in use: kv-server -H would take "
				     "ordinary ones",
				     machine->huge_total);
	else
		finding = report_add(report, GROUP, "huge pages", VERDICT_WARN,
				     "none are configured: kv-server -H would take ordinary "
				     "ones");
	report_fix(finding, "sysctl vm.nr_hugepages=%" PRIu64 " # 1 GiB%s",
		   machine->huge_total + 512, machine->huge_total ? " more" : "");
}

static void check_transparent(const struct machine *machine, struct report *report)
{
	const char *shared = machine->transparent_shared;

	if (!machine->transparent[0] && !shared[0]) {
		report_add(report, GROUP, "transparent pages", VERDICT_NONE, "not in this kernel");
		return;
	}
	/* The store lies in shared memory, and does not ask for them: it takes what is given. */
	report_add(report, GROUP, "transparent pages", VERDICT_OK,
		   "%s for ordinary memory, %s for shared memory, in which the store lies",
		   machine->transparent[0] ? machine->transparent : "never",
		   shared[0] ? shared : "never");
}

void check_memory(const struct machine *machine, enum path want, struct report *report)
{
	check_memlock(machine, want, report);
	check_huge_pages(machine, report);
	check_transparent(machine, report);
}
