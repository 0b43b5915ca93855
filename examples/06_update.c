/*
 * Several processes change one value, and no change is lost.
 *	06_update [server]	a host, or shm:NAME, tcp://HOST:PORT, verbs://HOST:PORT
 * The value is a list of letters. Each process appends its own, ten times, by kv_client_update:
 * read the value, make a new one, and write it only if nobody came between; else do it again.
 */
#include <err.h>
#include <remora/kv.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 4
#define TIMES	  10

static const char key[] = "example:letters";

struct append {
	char letter;
	char value[PROCESSES * TIMES + 1];
};

/* Is called again with a newer value when another process was faster. */
static int append_letter(void *context, const void *current, size_t current_length,
			 const void **value, size_t *length)
{
	struct append *append = context;

	if (current_length >= sizeof(append->value))
		return KV_INVALID; /* update gives up, and returns this */
	if (current)
		memcpy(append->value, current, current_length);
	append->value[current_length] = append->letter;
	*value = append->value;
	*length = current_length + 1;
	return KV_OK;
}

static void append_ten(kv_client_t *client, char letter)
{
	struct append append = {.letter = letter};

	for (int i = 0; i < TIMES; i++)
		if (kv_client_update(client, key, strlen(key), append_letter, &append, NULL))
			errx(1, "%s", kv_client_error(client));
}

int main(int argc, char **argv)
{
	char value[PROCESSES * TIMES], letter = 'a';
	size_t length = sizeof(value);
	kv_client_t *client;
	int failed = 0, status;
	pid_t child = 1;

	for (; child && letter < 'a' + PROCESSES; letter += child != 0)
		child = fork();
	/* Each process has a client of its own: one must not be used after a fork. */
	client = kv_client_create(CONN_MODE_AUTO);
	if (!client || kv_client_connect(client, argc > 1 ? argv[1] : NULL, 0) != KV_OK)
		errx(1, "%s", client ? kv_client_error(client) : "no memory");
	if (child == 0)
		append_ten(client, letter);
	while (wait(&status) > 0) /* a child has none */
		failed |= status;
	if (child) {
		if (failed || kv_client_get(client, key, strlen(key), value, &length))
			errx(1, "failed: %s", kv_client_error(client));
		printf("%zu letters: %.*s\n", length, (int)length, value);
		failed = length != sizeof(value);
		kv_client_delete(client, key, strlen(key));
	}
	kv_client_destroy(client);
	return failed;
}
