/*
 * Ctrl-C, and the other signals that end the program.
 *
 * Mostly they end it, as they would without us, after what must not stay behind has been undone: a
 * temporary file, the mode of the terminal. While a command of the prompt runs, Ctrl-C is a wish
 * that the command should end: long transfers, lists and the live screen look for it. Whoever
 * presses it twice does not want to wait for that.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>

#include "client.h"

static volatile sig_atomic_t is_held, has_come;
static void (*volatile undo_fn)(void);

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
#define NUMBER_COUNT (sizeof(numbers) / sizeof(numbers[0]))

static void on_signal(int number)
{
	if (number == SIGINT && is_held && !has_come) {
		has_come = 1;
		return;
	}
	if (undo_fn)
		undo_fn();
	signal(number, SIG_DFL);
	raise(number); /* when we return: it is blocked here */
}

void interrupt_init(void)
{
	for (size_t i = 0; i < NUMBER_COUNT; i++) {
		struct sigaction action = {.sa_handler = on_signal}, before;

		/* Who started us may want us to ignore it. */
		if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
	}
}

void interrupt_hold(void)
{
	has_come = 0;
	is_held = 1;
}

void interrupt_let_go(void)
{
	is_held = 0;
	has_come = 0;
}

bool interrupt_came(void)
{
	return has_come;
}

/* The signal is let through by the wait itself, so there is no moment between a look at the flag
 * and the wait at which it could be missed. */
bool interrupt_wait(int fd)
{
	struct pollfd wanted = {.fd = fd, .events = POLLIN};
	sigset_t block, before;

	sigemptyset(&block);
	sigaddset(&block, SIGINT);
	sigprocmask(SIG_BLOCK, &block, &before);
	while (!has_come && ppoll(&wanted, 1, NULL, &before) < 0 && errno == EINTR)
		;
	sigprocmask(SIG_SETMASK, &before, NULL);
	return !has_come;
}

void interrupt_block(bool is_blocked)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < NUMBER_COUNT; i++)
		sigaddset(&set, numbers[i]);
	sigprocmask(is_blocked ? SIG_BLOCK : SIG_UNBLOCK, &set, NULL);
}

void interrupt_undo(void (*undo)(void))
{
	undo_fn = undo;
}
