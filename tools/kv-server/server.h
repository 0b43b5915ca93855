/*
 * kv-server: the server of <remora/server.h> as a program. The map:
 *
 *	main.c		the program's life, and its signals
 *	options.c	the command line and the configuration file
 *	screen.c	what it says at the start, and how far it has come until then
 *	user.c		--user: from root to somebody with less rights
 *	pid_file.c	--pid-file
 *	notify.c	telling systemd, if that has started us
 *
 * The main thread does all of this; serving is done by threads of the library.
 */
#ifndef KV_SERVER_H
#define KV_SERVER_H

#include <remora/control_server.h>
#include <remora/server.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SERVER_MESSAGE 512

/* ------------------------------------------------------------------------------------------
 * Options
 */

struct server_settings {
	kv_server_options_t server;
	kv_control_server_options_t control; /* .address NULL: no gRPC */
	const char *node_id;		     /* NULL: none */
	const char *pid_file;		     /* NULL: none */
	const char *user;		     /* NULL: whoever we are */
	bool check_config;
};

/* Exits on a wrong command line or file, and after --help and --version. The strings live as long
 * as the program. */
void server_parse(int argc, char **argv, struct server_settings *settings);
/* What is in force, defaults included, as a configuration file on stdout. */
void server_print_settings(const struct server_settings *settings);

/* ------------------------------------------------------------------------------------------
 * What people see
 */

/* The first screen: "ready" is its last line. control NULL: there is no gRPC. */
void screen_print(kv_server_t *server, const kv_control_server_t *control,
		  const struct server_settings *settings);
/* The reason why it does not listen by tcp, written to `reason`. */
void screen_find_reason(kv_server_t *server, char reason[SERVER_MESSAGE]);
/* For kv_server_options_t: a line on a terminal; else a line in the log every few seconds. Gives up
 * when SIGINT or SIGTERM is waiting: *argument, a bool, tells. */
bool screen_progress(void *argument, const char *what, uint64_t done, uint64_t total);
/* Creation is over: wipes the line. */
void screen_progress_end(void);

/* ------------------------------------------------------------------------------------------
 * The file with the process's number
 */

struct pid_file {
	const char *path; /* NULL: none was wanted */
	int fd;
};

/* Opens and locks it; false with a message if another one has it. */
bool pid_file_take(struct pid_file *file, const char *path, char message[SERVER_MESSAGE]);
bool pid_file_write(const struct pid_file *file, char message[SERVER_MESSAGE]);
/* Where that is not permitted any more it is only emptied. */
void pid_file_remove(struct pid_file *file);

/* ------------------------------------------------------------------------------------------
 * Rights
 */

struct user {
	char name[64];
	uid_t uid;
	gid_t gid;
	bool changes; /* false: we are that user */
};

/* Finds "NAME" or "NAME:GROUP"; false with a message if there is none, or we cannot become it.
 * `text` NULL: nothing changes. */
bool user_find(const char *text, struct user *user, char message[SERVER_MESSAGE]);
/* Before the start: files and sockets are made as that user from now on; ports below 1024 can still
 * be had. */
bool user_begin(const struct user *user, char message[SERVER_MESSAGE]);
/* After it: no way back, for any thread. */
bool user_finish(const struct user *user, char message[SERVER_MESSAGE]);

/* ------------------------------------------------------------------------------------------
 * systemd
 */

/* Sends a state such as "READY=1" to $NOTIFY_SOCKET, if that is set. */
void notify_send(const char *state);

#endif
