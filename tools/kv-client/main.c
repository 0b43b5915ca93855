/*
 * kv-client: a kv-server's keys and values, from the command line or at a prompt.
 *
 *	kv-client [OPTION]... COMMAND [WORD...]
 *	kv-client [OPTION]...			reads commands from stdin, one a line
 *
 * A command that makes no sense is refused before anything is connected. The prompt ends at the end
 * of stdin or by "quit"; a command that fails there does not end it.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"

static enum client_exit connect_to(struct session *session, const struct client_config *config)
{
	int status;

	session->client = kv_client_create_with(config->mode, &config->options);
	if (!session->client)
		return show_error(session, CLIENT_FAILED, "no memory for a client");
	if (config->socket_mode)
		status = kv_client_connect_socket(session->client, config->server, config->port,
						  config->options.device);
	else
		status = kv_client_connect(session->client, config->server, config->port);
	return status == KV_OK ? CLIENT_OK : show_status(session, status);
}

/* One line of the prompt. False: it was the last one. */
static bool run_line(struct session *session, char *line)
{
	char *words[WORDS_MAX];
	const char *fault = "";
	int count = words_split(line, words, &fault);

	if (count < 0) {
		show_error(session, CLIENT_USAGE, "%s", fault);
	} else if (count > 0) {
		if (!strcmp(words[0], "quit") || !strcmp(words[0], "exit"))
			return false;
		if (!strcmp(words[0], "help"))
			command_help(stdout);
		else
			command_run(session, words, count);
	}
	fflush(stdout);
	return true;
}

static enum client_exit run_prompt(struct session *session)
{
	bool person = isatty(STDIN_FILENO);
	char *line = NULL;
	size_t room = 0;
	bool more = true;

	while (more) {
		ssize_t length;

		if (person) {
			fputs("kv> ", stdout);
			fflush(stdout);
		}
		length = getline(&line, &room, stdin);
		if (length < 0)
			break;
		if (strlen(line) != (size_t)length)
			show_error(session, CLIENT_USAGE, "a zero byte in the line");
		else
			more = run_line(session, line);
	}
	if (person && more)
		putchar('\n');
	free(line);
	return CLIENT_OK;
}

int main(int argc, char **argv)
{
	struct client_config config;
	struct session session = {0};
	enum client_exit code;

	client_parse(argc, argv, &config);
	if (config.word_count && !command_check(&session, config.words, config.word_count))
		return CLIENT_USAGE;
	code = connect_to(&session, &config);
	session.prompt = !config.word_count;
	if (code == CLIENT_OK)
		code = session.prompt ? run_prompt(&session)
				      : command_run(&session, config.words, config.word_count);
	kv_client_destroy(session.client);
	if (fflush(stdout) && code == CLIENT_OK)
		code = show_error(&session, CLIENT_FAILED, "stdout cannot be written");
	return code;
}
