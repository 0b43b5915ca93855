/*
 * kv-doctor: what is wrong with this machine's paths, or with the way to a server, and the command
 * that puts it right.
 *
 * Exits with 0 when the wanted path works, 1 when it does not, 2 when the command line makes no
 * sense.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "doctor.h"

#define WIDTH_LEAST 24
#define WIDTH_USUAL 80
#define WIDTH_MOST  120

static void check_all(const struct machine *machine, const struct config *config,
		      struct report *report)
{
	check_modules(machine, config->want, report);
	check_adapters(machine, config->want, report);
	check_libraries(machine, config->want, report);
	check_permissions(machine, config->want, report);
	check_memory(machine, config->want, report);
	check_firewall(machine, config->port, report);
}

static bool examine(const struct config *config, struct report *report)
{
	static struct machine machine; /* too large for a stack */
	static struct outcomes outcomes, reached;
	char chosen[512];
	bool good;

	machine_gather(&machine, config->root);
	check_all(&machine, config, report);
	if (machine.is_live) {
		try_own_port(config->port, config->timeout_ms, report);
		loopback_all(config->timeout_ms, config->want, report, &outcomes);
	} else {
		report_add(report, "Transfers", "transfers", VERDICT_NONE,
			   "nothing is tried: the files are those of another machine");
		outcomes_from_files(&machine, &outcomes);
	}
	machine_free(&machine);
	if (!config->server)
		return outcomes_judge(&outcomes, config, report);
	remote_check(config, report, &reached, chosen, sizeof(chosen));
	good = outcomes_judge_server(&reached, config, chosen, report);
	return good;
}

/* As options_terminal_width(), but a narrow terminal is taken as it is. */
static int terminal_width(void)
{
	const char *columns = getenv("COLUMNS");
	struct winsize window;
	int width = columns ? atoi(columns) : 0;

	if (width <= 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0)
		width = window.ws_col;
	if (width <= 0)
		return WIDTH_USUAL;
	return width < WIDTH_LEAST ? WIDTH_LEAST : width > WIDTH_MOST ? WIDTH_MOST : width;
}

/* NO_COLOR: see no-color.org. */
static bool wants_colours(void)
{
	const char *no_color = getenv("NO_COLOR"), *terminal = getenv("TERM");

	return isatty(STDOUT_FILENO) && !(no_color && *no_color) &&
	       !(terminal && strcmp(terminal, "dumb") == 0);
}

int main(int argc, char **argv)
{
	struct report report = {0};
	struct config config;
	bool good;

	doctor_parse(argc, argv, &config);
	good = examine(&config, &report);
	if (config.json)
		report_print_json(&report, stdout);
	else
		report_print(&report, stdout, terminal_width(), wants_colours());
	report_free(&report);
	if (fflush(stdout) != 0) {
		perror("kv-doctor: stdout");
		return 1;
	}
	return good ? 0 : 1;
}
