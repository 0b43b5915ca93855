/*
 * kv-server: the server of server.h as a program.
 *
 *	kv-server [-a HOST] [-p PORT] [-m MEGABYTES] ...
 *
 * The main thread starts the server, tells where it listens, and then waits for signals; all
 * serving is done by threads of the library. The signals are blocked before any of those threads
 * begins, so that sigwait() here is the only one to see them, and no handler is needed.
 *
 * The order of the start is that of rights: the pid file, memory, keys and adapters as root if we
 * are root, sockets as the user, and only then is it written down and told that the server is
 * there. What is printed then goes to stdout; statistics go to stderr, as the log does.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "server.h"

enum { EXIT_FAILED = 1, EXIT_WRONG = 2 };

static int failed(const char *message)
{
	screen_progress_end();
	fprintf(stderr, "kv-server: %s\n", message);
	return EXIT_FAILED;
}

/* A server and its gRPC, which is NULL if it was not asked for. */
struct both {
	kv_server_t *server;
	kv_control_server_t *control;
};

static void print_statistics(const struct both *both)
{
	char *text;

	if (kv_server_stats(both->server, &text) != KV_OK) {
		failed(kv_server_error());
		return;
	}
	fprintf(stderr, "%s", text);
	free(text);
	if (both->control && kv_control_server_stats(both->control, &text) == KV_OK) {
		fprintf(stderr, "%s", text);
		free(text);
	}
}

/* The old ones stay if the new ones cannot be read. */
static void read_certificates(kv_control_server_t *control)
{
	if (kv_control_server_read_certificates(control) == KV_OK)
		log_info("SIGHUP: the TLS certificate was read anew");
	else
		log_error("SIGHUP: the old TLS certificate stays: %s", kv_control_server_error());
}

/* The old keys stay if the new ones cannot be read. */
static void read_keys(kv_server_t *server, const kv_server_options_t *options)
{
	if (!options->key_file)
		log_info("SIGHUP: there are no key files to read");
	else if (kv_server_read_keys(server, options->key_file, options->read_key_file) == KV_OK)
		log_info("SIGHUP: the key files were read anew");
	else
		log_error("SIGHUP: the old keys stay: %s", kv_server_error());
}

/* Every client needs some descriptors: as many as are permitted. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

/* The signals that are ours. Whoever reads our output may go away: that ends nothing. */
static void take_signals(sigset_t *ours)
{
	signal(SIGPIPE, SIG_IGN);
	sigemptyset(ours);
	sigaddset(ours, SIGTERM);
	sigaddset(ours, SIGINT);
	sigaddset(ours, SIGUSR1);
	sigaddset(ours, SIGHUP);
	sigprocmask(SIG_BLOCK, ours, NULL);
}

/* Returns the signal that asked for the end. */
static int wait_for_end(const struct both *both, const sigset_t *ours,
			const struct server_settings *settings)
{
	for (;;) {
		int number;

		if (sigwait(ours, &number))
			continue;
		if (number == SIGUSR1) {
			print_statistics(both);
		} else if (number == SIGHUP) {
			read_keys(both->server, &settings->server);
			if (settings->control.tls_cert)
				read_certificates(both->control);
		} else {
			return number;
		}
	}
}

static int check_config(const struct server_settings *settings)
{
	char message[SERVER_MESSAGE];
	struct user user;

	if (!user_find(settings->user, &user, message)) {
		failed(message);
		return EXIT_WRONG;
	}
	if (kv_server_check(&settings->server) != KV_OK) {
		failed(kv_server_error());
		return EXIT_WRONG;
	}
	if (settings->control.address && kv_control_server_check(&settings->control) != KV_OK) {
		failed(kv_control_server_error());
		return EXIT_WRONG;
	}
	server_print_settings(settings);
	return 0;
}

/* Start, with rights as they should be. False with a message. */
static bool start(const struct both *both, const struct server_settings *settings,
		  const struct user *user, const struct pid_file *file,
		  char message[SERVER_MESSAGE])
{
	kv_server_t *server = both->server;

	if (!user_begin(user, message))
		return false;
	if (kv_server_start(server) != KV_OK) {
		snprintf(message, SERVER_MESSAGE, "%s", kv_server_error());
		return false;
	}
	/* Without a list the program means: reachable. A port that is taken is no missing path. */
	if (!settings->server.listen && kv_server_port(server) == 0) {
		screen_find_reason(server, message);
		return false;
	}
	if (both->control && kv_control_server_start(both->control) != KV_OK) {
		snprintf(message, SERVER_MESSAGE, "--listen-addr: %s", kv_control_server_error());
		return false;
	}
	return user_finish(user, message) && pid_file_write(file, message);
}

static int serve(const struct both *both, const struct server_settings *settings,
		 const struct user *user, const struct pid_file *file, const sigset_t *ours)
{
	char message[SERVER_MESSAGE];
	int number;

	if (!start(both, settings, user, file, message))
		return failed(message);
	screen_print(both->server, both->control, settings);
	notify_send("READY=1\nSTATUS=serving");
	number = wait_for_end(both, ours, settings);
	notify_send("STOPPING=1\nSTATUS=finishing what is under way");
	printf("%s: stopping\n", strsignal(number));
	fflush(stdout);
	if (both->control)
		kv_control_server_stop(both->control);
	kv_server_stop(both->server);
	return 0;
}

/* Key and certificate are read here, by whoever we still are. */
static int create_control_and_serve(kv_server_t *server, const struct server_settings *settings,
				    const struct user *user, const struct pid_file *file,
				    const sigset_t *ours)
{
	struct both both = {.server = server};
	int result;

	if (settings->control.address &&
	    kv_control_server_create(server, &settings->control, &both.control) != KV_OK) {
		char message[SERVER_MESSAGE];

		snprintf(message, sizeof(message), "--listen-addr: %s", kv_control_server_error());
		return failed(message);
	}
	result = serve(&both, settings, user, file, ours);
	kv_control_server_destroy(both.control);
	return result;
}

int main(int argc, char **argv)
{
	struct server_settings settings;
	char message[SERVER_MESSAGE];
	struct pid_file file;
	struct user user;
	kv_server_t *server;
	sigset_t ours;
	bool is_stopped = false;
	int result = 0;

	server_parse(argc, argv, &settings);
	if (settings.check_config)
		return check_config(&settings);
	if (!user_find(settings.user, &user, message) ||
	    !pid_file_take(&file, settings.pid_file, message))
		return failed(message);
	raise_descriptor_limit();
	take_signals(&ours);
	settings.server.progress = screen_progress;
	settings.server.progress_argument = &is_stopped;
	if (kv_server_create(&settings.server, &server) == KV_OK) {
		screen_progress_end();
		result = create_control_and_serve(server, &settings, &user, &file, &ours);
		kv_server_destroy(server);
	} else if (is_stopped) {
		screen_progress_end();
		printf("stopping before the start\n");
	} else {
		result = failed(kv_server_error());
	}
	pid_file_remove(&file);
	return result;
}
