/*
 * What people see of a server that starts: how far it has come with its memory, then one screen
 * that says what it is and where it listens.
 *
 * The screen goes to stdout, in lines of the terminal's width, 80 at most. Programs that start a
 * server read it, too: lines that tell where it listens are never broken, "port: " has the port,
 * and "ready" is the last line.
 */
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/version.h"
#include "common/progress.h"
#include "server.h"

#define WIDTH_LEAST   40
#define WIDTH_MOST    80
#define INDENT	      2
#define OFF_MARK      ": not listening: "
#define TELL_EVERY_NS UINT64_C(3000000000)

/* ------------------------------------------------------------------------------------------
 * The first screen
 */

static int find_width(void)
{
	const char *columns = getenv("COLUMNS");
	struct winsize window;
	int width = WIDTH_MOST;

	if (columns && atoi(columns) > 0)
		width = atoi(columns);
	else if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
		width = window.ws_col;
	return width < WIDTH_LEAST ? WIDTH_LEAST : width > WIDTH_MOST ? WIDTH_MOST : width;
}

/* Prints a line of `length`, broken between words. */
static void print_wrapped(const char *line, size_t length, int width)
{
	int column = 0;

	for (const char *at = line; at < line + length;) {
		size_t left = (size_t)(line + length - at), word = 0;

		while (word < left && at[word] != ' ')
			word++;
		if (column > INDENT && column + 1 + (int)word > width) {
			printf("\n%*s", INDENT, "");
			column = INDENT;
		} else if (column > INDENT) {
			putchar(' ');
			column++;
		}
		printf("%.*s", (int)word, at);
		column += (int)word;
		at += word < left ? word + 1 : word;
	}
	putchar('\n');
}

/* "verbs: not listening: no RDMA device. To add one: ..." is a machine as most are, and nothing
 * that failed: "verbs: off (no RDMA device). To add one: ..." */
static void print_off(const char *line, size_t length, const char *place, int width)
{
	const char *reason = place + strlen(OFF_MARK), *end = line + length;
	size_t what = 0;
	char text[1024];

	while (reason + what < end && strncmp(reason + what, ". ", 2) != 0)
		what++;
	snprintf(text, sizeof(text), "%.*s: off (%.*s)%.*s", (int)(place - line), line, (int)what,
		 reason, (int)(end - reason - (ptrdiff_t)what), reason + what);
	print_wrapped(text, strlen(text), width);
}

static void print_lines(const char *text, int width)
{
	while (*text) {
		size_t length = strcspn(text, "\n");
		const char *place = strstr(text, ": listening at "), *off = strstr(text, OFF_MARK);

		if (place && place < text + length)
			printf("%.*s\n", (int)length, text);
		else if (off && off < text + length)
			print_off(text, length, off, width);
		else
			print_wrapped(text, length, width);
		text += length + (text[length] == '\n');
	}
}

void screen_print(kv_server_t *server, const kv_control_server_t *control,
		  const struct server_settings *settings)
{
	int width = find_width();

	printf("kv-server (Remora) %s\n", REMORA_VERSION);
	if (settings->node_id)
		printf("node: %s\n", settings->node_id);
	print_lines(kv_server_summary(server), width);
	print_lines(kv_server_paths(server), width);
	if (control)
		printf("grpc: listening at %s%s\n", kv_control_server_address(control),
		       settings->control.tls_cert ? " by TLS" : "");
	if (control && *kv_control_server_data_addresses(control))
		printf("grpc data: listening at %s\n", kv_control_server_data_addresses(control));
	if (kv_server_port(server))
		printf("port: %d\n", kv_server_port(server));
	printf("ready\n");
	fflush(stdout);
}

void screen_find_reason(kv_server_t *server, char reason[SERVER_MESSAGE])
{
	static const char mark[] = "tcp: not listening: ";
	const char *found = strstr(kv_server_paths(server), mark);

	snprintf(reason, SERVER_MESSAGE, "%.*s", found ? (int)strcspn(found, "\n") : 0,
		 found ? found : "");
	if (found)
		memmove(reason, reason + strlen(mark), strlen(reason + strlen(mark)) + 1);
}

/* ------------------------------------------------------------------------------------------
 * Progress
 */

static struct {
	struct progress line;
	char what[128]; /* "": nothing has begun */
	uint64_t told_ns;
} shown;

/* Nothing is served yet: whoever wants the end need not wait for the rest. */
static bool is_asked_to_end(void)
{
	sigset_t waiting;

	return sigpending(&waiting) == 0 &&
	       (sigismember(&waiting, SIGINT) || sigismember(&waiting, SIGTERM));
}

static void begin(const char *what, uint64_t total)
{
	progress_end(&shown.line);
	snprintf(shown.what, sizeof(shown.what), "%s", what);
	progress_begin(&shown.line, shown.what, total, PROGRESS_BYTES);
	shown.told_ns = shown.line.start_ns;
}

/* For whoever cannot see the line: the log, and systemd, which would lose patience. */
static void tell(uint64_t done, uint64_t total)
{
	char state[256];

	log_info("%s: %.0f%% of %lluMiB", shown.what,
		 100.0 * (double)done / (double)(total + !total),
		 (unsigned long long)(total >> 20));
	snprintf(state, sizeof(state), "EXTEND_TIMEOUT_USEC=60000000\nSTATUS=%s: %.0f%%",
		 shown.what, 100.0 * (double)done / (double)(total + !total));
	notify_send(state);
}

bool screen_progress(void *argument, const char *what, uint64_t done, uint64_t total)
{
	bool is_new = strcmp(shown.what, what) != 0;
	uint64_t now;

	if (is_asked_to_end()) {
		*(bool *)argument = true;
		return false;
	}
	if (is_new)
		begin(what, total);
	progress_show(&shown.line, done);
	now = clock_now_ns();
	/* What takes one long call, as registering does, is told of before it. */
	if (now - shown.told_ns >= TELL_EVERY_NS || (is_new && done < total)) {
		shown.told_ns = now;
		tell(done, total);
	}
	return true;
}

void screen_progress_end(void)
{
	if (shown.what[0])
		progress_end(&shown.line);
	shown.what[0] = '\0';
}
