/*
 * The live screen: asks the server for its figures again and again, and draws what became of them
 * in between (frame.c).
 *
 * It works on the terminal's other screen, so that what was there before is there again at the end,
 * with plain escape sequences that every terminal of today knows. Lines are drawn over the old
 * ones, not after clearing, so nothing flickers. Ctrl-C and q end it; a signal that ends the
 * program puts the terminal back first. A server that is gone is told on the screen, and waited
 * for.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "client.h"

#define DEFAULT_INTERVAL_NS UINT64_C(1000000000)
#define LEAST_INTERVAL_NS   UINT64_C(50000000)
#define MOST_INTERVAL_NS    UINT64_C(3600000000000)

#define ENTER_SCREEN "\x1b[?1049h\x1b[?25l"
#define LEAVE_SCREEN "\x1b[?25h\x1b[?1049l"
#define END_OF_LINE  "\x1b[K\n"
#define TO_BEGINNING "\x1b[H"
#define CLEAR_BELOW  "\x1b[J"

static struct termios found;
static volatile sig_atomic_t size_has_changed;

static void on_size(int number)
{
	(void)number;
	size_has_changed = 1;
}

/* Also in a signal's handler. */
static void leave_screen(void)
{
	if (write(STDOUT_FILENO, LEAVE_SCREEN, sizeof(LEAVE_SCREEN) - 1) < 0)
		return;
	tcsetattr(STDIN_FILENO, TCSANOW, &found);
}

static bool enter_screen(void)
{
	struct sigaction size = {.sa_handler = on_size};
	struct termios mode;

	if (tcgetattr(STDIN_FILENO, &found))
		return false;
	mode = found;
	mode.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
	/* A program that sleeps on the other screen would be lost there. */
	mode.c_cc[VSUSP] = _POSIX_VDISABLE;
	interrupt_undo(leave_screen);
	tcsetattr(STDIN_FILENO, TCSANOW, &mode);
	sigaction(SIGWINCH, &size, NULL);
	fputs(ENTER_SCREEN, stdout);
	return true;
}

static void end_screen(void)
{
	fflush(stdout);
	leave_screen();
	interrupt_undo(NULL);
	signal(SIGWINCH, SIG_DFL);
}

/* Takes one more look. KV status. */
static int look(struct session *session, struct frame *frame)
{
	struct figures figures;
	int status = ask_ping(session, &frame->ping_ns);

	if (status == KV_OK)
		status = figures_take(session, &figures);
	if (status != KV_OK)
		return status;
	figures_free(&frame->then);
	frame->then = frame->now;
	frame->now = figures;
	return KV_OK;
}

static void draw(const struct session *session, const struct frame *frame, int status)
{
	struct winsize window = {0};
	int width = 80, height = 24;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col && window.ws_row) {
		width = window.ws_col;
		height = window.ws_row;
	}
	fputs(TO_BEGINNING, stdout);
	if (status != KV_OK)
		printf("%.*s" END_OF_LINE, width - 1, ask_error(session));
	if (frame->now.text)
		frame_draw(frame, stdout, width, height - 1 - (status != KV_OK), END_OF_LINE);
	fputs(CLEAR_BELOW, stdout);
	fflush(stdout);
}

/* Waits for the next look. False: a key was pressed that ends it. */
static bool wait_for_key(struct session *session, const struct frame *frame, int status,
			 uint64_t deadline_ns)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

	for (;;) {
		int ready = poll(&input, 1, clock_remaining_ms(deadline_ns));
		char key = 0;

		if (interrupt_came())
			return false;
		if (size_has_changed) {
			size_has_changed = 0;
			fputs("\x1b[2J", stdout);
			draw(session, frame, status);
		}
		if (ready == 0)
			return true;
		if (ready < 0)
			continue;
		if (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q' || key == 4)
			return false;
		return true; /* any other key: look at once */
	}
}

static enum client_exit run_live(struct session *session, struct frame *frame)
{
	bool more = true;

	fflush(stdout);
	if (!enter_screen())
		return show_error(session, CLIENT_FAILED, "the terminal: %s", strerror(errno));
	while (more) {
		uint64_t next_ns = clock_now_ns() + frame->interval_ns;
		int status = look(session, frame);

		draw(session, frame, status);
		/* The first difference soon. */
		if (status == KV_OK && !frame->then.text)
			next_ns = clock_now_ns() + frame->interval_ns / 4;
		more = wait_for_key(session, frame, status, next_ns);
	}
	end_screen();
	return CLIENT_OK;
}

/* Sleeps, unless Ctrl-C comes. */
static void pass_time(uint64_t ns)
{
	uint64_t deadline_ns = clock_now_ns() + ns;

	while (!clock_passed(deadline_ns) && !interrupt_came())
		poll(NULL, 0, clock_remaining_ms(deadline_ns));
}

static enum client_exit run_once(struct session *session, struct frame *frame)
{
	int status = look(session, frame);

	if (status == KV_OK) {
		pass_time(frame->interval_ns);
		status = look(session, frame);
	}
	if (status != KV_OK)
		return show_status(session, status);
	if (session->json) {
		frame_json(frame);
	} else {
		struct winsize window = {0};
		bool terminal = ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0;

		frame_draw(frame, stdout, terminal ? window.ws_col : 0, 0, "\n");
	}
	return CLIENT_OK;
}

static bool take_interval(const struct session *session, const char *word, uint64_t *interval_ns)
{
	*interval_ns = DEFAULT_INTERVAL_NS;
	if (!word)
		return true;
	if (duration_parse(word, interval_ns) != RMR_OK) {
		show_error(session, CLIENT_USAGE, "%s", error_chain());
		return false;
	}
	if (*interval_ns >= LEAST_INTERVAL_NS && *interval_ns <= MOST_INTERVAL_NS)
		return true;
	show_error(session, CLIENT_USAGE, "--interval: '%s' is not between 50ms and 1h", word);
	return false;
}

enum client_exit run_top(struct session *session, const struct command_words *words)
{
	bool live = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && !session->json &&
		    !command_option(words, "--once");
	struct frame frame = {0};
	enum client_exit code;
	char title[256];

	if (!take_interval(session, command_option(words, "--interval"), &frame.interval_ns))
		return CLIENT_USAGE;
	if (session->config->server)
		snprintf(title, sizeof(title), "%s", session->config->server);
	else
		snprintf(title, sizeof(title), "port %d", session->config->port);
	frame.title = title;
	if (!session->prompt && live)
		interrupt_hold();
	code = live ? run_live(session, &frame) : run_once(session, &frame);
	if (!session->prompt)
		interrupt_let_go();
	figures_free(&frame.then);
	figures_free(&frame.now);
	return code;
}
