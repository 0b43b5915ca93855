/*
 * Fuzzes the reader of configuration files. What it accepts, written out and read again, must be
 * accepted and written the same.
 */
#include <stdlib.h>
#include <string.h>

#include "base/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
	bool huge;
	uint64_t port, memory;
	const char *device, *file;
	int on_full;
} args;

static const char *const on_full_names[] = {"evict", "reject", NULL};

static const struct option_spec specs[] = {
	OPTION_FLAG("huge", 0, &args.huge, ""),
	OPTION_UINT("port", 0, &args.port, "", .max = 65535),
	OPTION_SIZE("memory", 0, &args.memory, ""),
	OPTION_STRING("device", 0, &args.device, ""),
	OPTION_STRING("file", 0, &args.file, ""),
	OPTION_CHOICE("on-full", 0, &args.on_full, on_full_names, ""),
};

static const struct options_program program = {
	.name = "fuzz",
	.specs = specs,
	.spec_count = OPTIONS_COUNT(specs),
};

static void set_defaults(void)
{
	memset(&args, 0, sizeof(args));
	args.device = args.file = "";
}

static char *write_all(void)
{
	char *text;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	if (!file)
		abort();
	config_write(&program, NULL, file);
	fclose(file);
	return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const excluded[] = {"config", NULL};
	char message[OPTIONS_MESSAGE_SIZE], *first, *copy, *second;
	/* Exactly so long: whoever reads beyond it is seen. */
	char *text = malloc(size + 1);

	memcpy(text, data, size);
	text[size] = '\0';
	set_defaults();
	if (config_parse(&program, excluded, "x", text, size, message)) {
		first = write_all();
		copy = strdup(first);
		set_defaults();
		if (!config_parse(&program, NULL, "x", copy, strlen(copy), message))
			abort();
		second = write_all();
		if (strcmp(first, second) != 0)
			abort();
		free(second);
		free(copy);
		free(first);
	} else if (strncmp(message, "x:", 2) != 0) {
		abort();
	}
	free(text);
	return 0;
}
