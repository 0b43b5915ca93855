/*
 * kv-doctor's parts, without a machine: rules of firewalls, the choice of a GID, what speaks
 * against an adapter, and how findings are shown. And its transfers, for the sanitizers to see;
 * kv_doctor_test.py drives the program.
 *
 *	kv_doctor_parts_test		anywhere
 *	kv_doctor_parts_test guest	in the lab's guest (scripts/lab/suite.py): what it finds of
 *					real adapters; it takes a link away, and gives it back
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/test.h"
#include "kv-doctor/doctor.h"

static void test_nft_rules(void)
{
	static const struct {
		const char *rules;
		bool blocks;
	} cases[] = {
		{"", false},
		{"table ip t {\nchain c {\ntype filter hook input priority 0; policy drop;\n}\n}\n",
		 true},
		{"table ip t {\nchain c {\ntype filter hook output priority 0; policy "
		 "drop;\n}\n}\n",
		 false},
		{"table ip t {\nchain c {\ntype filter hook input priority 0; policy drop;\n"
		 "tcp dport { 22, 700-800 } accept\n}\n}\n",
		 false},
		{"table ip t {\nchain c {\ntype filter hook input priority 0; policy drop;\n"
		 "meta l4proto { tcp, udp } th dport 777 accept\n}\n}\n",
		 false},
		{"table ip t {\nchain c {\ntype filter hook input priority 0; policy drop;\n"
		 "jump ours\n}\nchain ours {\ntcp dport 777 counter packets 1 bytes 2 accept\n}\n}",
		 false},
		{"table ip t {\nchain c {\ntype filter hook input priority 0; policy drop;\n"
		 "accept\n}\n}\n",
		 false},
		{"table ip t {\nchain c {\ntype filter hook input priority 0; policy accept;\n"
		 "drop\naccept\n}\n}\n",
		 true},
		{"chain {\ntype filter hook input; policy accept;\ntcp dport 777 reject with x\n}",
		 true},
		{"tcp dport", false},
		{"tcp dport ", false},
	};
	char fix[320];

	for (size_t i = 0; i < TEST_COUNT(cases); i++)
		if (nft_blocks(cases[i].rules, "tcp", 777, fix, sizeof(fix)) != cases[i].blocks)
			TEST_FAIL("case %zu", i);
	CHECK(!nft_blocks(NULL, "tcp", 777, fix, sizeof(fix)));
}

static void test_iptables_rules(void)
{
	char fix[320];

	CHECK(!iptables_blocks(NULL, "tcp", 777, fix, sizeof(fix)));
	CHECK(!iptables_blocks("-P INPUT ACCEPT\n", "tcp", 777, fix, sizeof(fix)));
	CHECK(iptables_blocks("-P INPUT DROP", "tcp", 777, fix, sizeof(fix)));
	CHECK_STR(fix, "iptables -I INPUT -p tcp --dport 777 -j ACCEPT");
	CHECK(iptables_blocks("-P INPUT DROP\n-A INPUT -p tcp --dport", "tcp", 777, fix,
			      sizeof(fix)));
	CHECK(!iptables_blocks("-P INPUT DROP\n-A INPUT -j ACCEPT\n", "tcp", 777, fix,
			       sizeof(fix)));
	CHECK(!iptables_blocks("-P INPUT DROP\n-A INPUT -p tcp --dport 777 -j ACCEPT\n", "tcp", 777,
			       fix, sizeof(fix)));
}

/* ------------------------------------------------------------------------------------------
 * Adapters
 */

static void add_gid(struct port *port, int index, bool is_v2, const uint8_t raw[16])
{
	struct gid *gid = &port->gids[port->gid_count++];

	*gid = (struct gid){.index = index, .is_v2 = is_v2};
	memcpy(gid->raw, raw, 16);
}

static const uint8_t v4[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [15] = 1};
static const uint8_t v6[16] = {0xfd, 0x77, [15] = 1};
static const uint8_t link_local[16] = {0xfe, 0x80, [15] = 1};

static void test_gid(void)
{
	struct port port = {.link_layer = "Ethernet"};
	char text[64];

	CHECK(!port_gid(&port));
	add_gid(&port, 0, false, v4); /* RoCE v1 */
	CHECK(!port_gid(&port));
	add_gid(&port, 1, true, link_local);
	CHECK_EQ(port_gid(&port)->index, 1);
	add_gid(&port, 2, true, v6);
	add_gid(&port, 3, true, v6);
	CHECK_EQ(port_gid(&port)->index, 2);
	add_gid(&port, 4, true, v4);
	CHECK_EQ(port_gid(&port)->index, 4);
	gid_format(port_gid(&port), text, sizeof(text));
	CHECK_STR(text, "10.0.0.1");
	strcpy(port.link_layer, "InfiniBand");
	CHECK_EQ(port_gid(&port)->index, 0);
}

static void test_what_breaks_an_adapter(void)
{
	static struct machine machine = {.has_libibverbs = true, .memlock = UINT64_MAX};
	static struct adapter adapter = {
		.name = "mlx5_0",
		.uverbs = "uverbs0",
		.access = ACCESS_GRANTED,
		.has_library = true,
		.port_count = 1,
		.ports[0] = {.state = "ACTIVE", .link_layer = "Ethernet"},
	};
	char reason[256];

	adapter.driver = driver_find("mlx5_ib");
	CHECK(adapter_is_broken(&machine, &adapter, reason, sizeof(reason)));
	CHECK_CONTAINS(reason, "no GID");
	add_gid(&adapter.ports[0], 0, true, v4);
	CHECK(!adapter_is_broken(&machine, &adapter, reason, sizeof(reason)));
	machine.memlock = MEMLOCK_LEAST - 1;
	CHECK(adapter_is_broken(&machine, &adapter, reason, sizeof(reason)));
	CHECK_CONTAINS(reason, "may be locked");
	machine.memlock = MEMLOCK_LEAST;
	CHECK(!adapter_is_broken(&machine, &adapter, reason, sizeof(reason)));
	adapter.access = ACCESS_DENIED;
	CHECK(adapter_is_broken(&machine, &adapter, reason, sizeof(reason)));
	CHECK_CONTAINS(reason, "no permission");
	adapter.driver = driver_find("efa");
	CHECK(adapter_is_broken(&machine, &adapter, reason, sizeof(reason)));
	CHECK_CONTAINS(reason, "EFA");
}

/* ------------------------------------------------------------------------------------------
 * Findings
 */

static char *shown(const struct report *report, int width, bool json)
{
	char *text = NULL;
	size_t length;
	FILE *file = open_memstream(&text, &length);

	CHECK(file != NULL);
	if (json)
		report_print_json(report, file);
	else
		report_print(report, file, width, false);
	fclose(file);
	return text;
}

static void test_report(void)
{
	struct report report = {0};
	char *text;

	report_add(&report, "Kernel", "ib_core", VERDICT_OK, "loaded");
	report_fix(report_add(&report, "Kernel", "ib_uverbs", VERDICT_FAIL, "not %s", "loaded"),
		   "modprobe %s", "ib_uverbs");
	report_add(&report, "Memory", "pages", VERDICT_NONE, "none");
	text = shown(&report, 80, false);
	CHECK_STR(text, "Kernel\n"
			"  OK    ib_core    loaded\n"
			"  FAIL  ib_uverbs  not loaded\n"
			"                   fix: modprobe ib_uverbs\n"
			"\n"
			"Memory\n"
			"  n/a   pages      none\n");
	free(text);
	text = shown(&report, 30, false);
	CHECK_CONTAINS(text, "  FAIL  ib_uverbs\n"
			     "        not loaded\n"
			     "        fix: modprobe\n"
			     "             ib_uverbs\n");
	free(text);
	report_free(&report);
}

static void test_report_fits_every_width(void)
{
	struct report report = {0};

	for (int i = 0; i < 40; i++)
		report_fix(report_add(&report, "Group", "a check with words", VERDICT_WARN,
				      "%.*s of it\nand a new line", i * 10,
				      "words and words and words and words and words and words and "
				      "words and words and words and words and words and words"),
			   "do this and that and more");
	for (int width = 24; width < 130; width++) {
		char *text = shown(&report, width, false);

		for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
			if ((int)strlen(line) > width)
				TEST_FAIL("width %d: '%s'", width, line);
		free(text);
	}
	report_free(&report);
}

static void test_json(void)
{
	struct report report = {0};
	char *text;

	report_add(&report, "G", "c", VERDICT_OK, "a \"word\", \\ and \n\x01");
	text = shown(&report, 0, true);
	CHECK_STR(text, "{\"group\": \"G\", \"check\": \"c\", \"status\": \"OK\", \"finding\": "
			"\"a \\\"word\\\", \\\\ and \\u000a\\u0001\", \"fix\": \"\"}\n");
	free(text);
	report_free(&report);
}

/* ------------------------------------------------------------------------------------------
 * Transfers
 */

static void test_transfers(void)
{
	static struct outcomes outcomes;
	struct report report = {0};
	int shm = 0, tcp = 0;

	loopback_all(20000, PATH_AUTO, &report, &outcomes);
	for (int i = 0; i < outcomes.count; i++) {
		const struct outcome *outcome = &outcomes.list[i];

		if (outcome->path == PATH_SHM || outcome->path == PATH_TCP)
			CHECK_STR(outcome->reason, "");
		shm += outcome->path == PATH_SHM && outcome->works;
		tcp += outcome->path == PATH_TCP && outcome->works;
	}
	CHECK_EQ(shm, 1);
	CHECK_EQ(tcp, 1);
	report_free(&report);
}

/* ------------------------------------------------------------------------------------------
 * In the guest
 */

static void examine(struct report *report, struct outcomes *outcomes)
{
	static struct machine machine;

	machine_gather(&machine, "");
	check_modules(&machine, PATH_VERBS, report);
	check_adapters(&machine, PATH_VERBS, report);
	check_libraries(&machine, PATH_VERBS, report);
	check_permissions(&machine, PATH_VERBS, report);
	loopback_all(20000, PATH_VERBS, report, outcomes);
	machine_free(&machine);
}

static const struct finding *find_finding(const struct report *report, const char *check)
{
	for (size_t i = 0; i < report->count; i++)
		if (strcmp(report->findings[i].check, check) == 0)
			return &report->findings[i];
	TEST_FAIL("no finding %s", check);
}

static void test_adapters_are_fine(void)
{
	static struct outcomes outcomes;
	struct report report = {0};

	examine(&report, &outcomes);
	for (size_t i = 0; i < report.count; i++)
		if (report.findings[i].verdict == VERDICT_FAIL)
			TEST_FAIL("%s: %s", report.findings[i].check, report.findings[i].text);
	CHECK_STR(find_finding(&report, "rdma_rxe")->text, "loaded");
	/* The GID that files tell is the one that the provider takes. */
	CHECK_CONTAINS(find_finding(&report, "rxe0 port 1 GID")->text, "10.77.0.1, is used");
	CHECK_CONTAINS(find_finding(&report, "verbs:rxe0")->text, " by 10.77.0.1");
	CHECK_CONTAINS(find_finding(&report, "rxe1 port 1 GID")->text, "10.78.0.1, is used");
	CHECK_CONTAINS(find_finding(&report, "verbs:rxe1")->text, " by 10.78.0.1");
	CHECK_EQ(find_finding(&report, "verbs:rxe1,socket")->verdict, VERDICT_OK);
	report_free(&report);
}

static void test_link_down(void)
{
	static struct outcomes outcomes;
	struct report report = {0};
	bool down = system("ip link set eth1 down") == 0;

	if (down)
		examine(&report, &outcomes);
	CHECK_EQ(system("ip link set eth1 up && "
			"ip -6 address replace fd78::1/64 dev eth1 nodad"),
		 0);
	CHECK(down);
	CHECK_EQ(find_finding(&report, "rxe1 port 1")->verdict, VERDICT_FAIL);
	CHECK_STR(find_finding(&report, "rxe1 port 1")->fix, "ip link set dev eth1 up");
	CHECK_EQ(find_finding(&report, "verbs:rxe1")->verdict, VERDICT_FAIL);
	CHECK_STR(find_finding(&report, "verbs:rxe1")->fix, "ip link set dev eth1 up");
	CHECK_EQ(find_finding(&report, "verbs:rxe0")->verdict, VERDICT_OK);
	report_free(&report);
}

static const struct test guest_tests[] = {
	{"adapters_are_fine", test_adapters_are_fine},
	{"link_down", test_link_down},
};

static const struct test tests[] = {
	{"nft_rules", test_nft_rules},
	{"iptables_rules", test_iptables_rules},
	{"gid", test_gid},
	{"what_breaks_an_adapter", test_what_breaks_an_adapter},
	{"report", test_report},
	{"report_fits_every_width", test_report_fits_every_width},
	{"json", test_json},
	{"transfers", test_transfers},
};

int main(int argc, char **argv)
{
	bool in_guest = argc > 1 && strcmp(argv[1], "guest") == 0;

	if (!in_guest)
		return test_main(argc, argv, "kv_doctor_parts", tests, TEST_COUNT(tests));
	if (access("/lab/lane", F_OK) != 0) {
		fprintf(stderr, "this is not the lab's guest\n");
		return 1;
	}
	return test_main(argc - 1, argv + 1, "kv_doctor_parts", guest_tests,
			 TEST_COUNT(guest_tests));
}
