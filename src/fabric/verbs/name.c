/* The name of a device: "mlx5_0,socket,gid=3". */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fabric/verbs/internal.h"

static const struct {
	const char *key;
	size_t field;
	int least, most;
} numbers[] = {
	{"gid", offsetof(struct verbs_name, gid), 0, 255},
	{"port", offsetof(struct verbs_name, port), 1, 255},
	{"mtu", offsetof(struct verbs_name, mtu), 256, 4096},
	{"timeout", offsetof(struct verbs_name, timeout), 1, 31},
	{"retry", offsetof(struct verbs_name, retry), 0, 7},
};

static enum rmr_status parse_number(const char *word, struct verbs_name *name)
{
	size_t length = strcspn(word, "=");

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		const char *digits = word + length + 1;
		char *end;
		long value;

		if (strlen(numbers[i].key) != length || memcmp(numbers[i].key, word, length) != 0)
			continue;
		/* strtol itself would take blanks and signs. */
		value = word[length] && isdigit((unsigned char)*digits) ? strtol(digits, &end, 10)
									: -1;
		if (value < 0 || *end || value < numbers[i].least || value > numbers[i].most)
			return error_set(RMR_INVALID, "'%s': write %s=NUMBER, from %d to %d", word,
					 numbers[i].key, numbers[i].least, numbers[i].most);
		*(int *)((char *)name + numbers[i].field) = (int)value;
		return RMR_OK;
	}
	return error_set(RMR_INVALID,
			 "'%s' is no option of a verbs device; there are: socket gid=N port=N "
			 "mtu=N timeout=N retry=N",
			 word);
}

enum rmr_status name_parse(const char *text, struct verbs_name *name)
{
	bool first = true;

	/* Not 7: soft-RoCE takes that for `for ever`, and would never give up a silent peer. */
	*name = (struct verbs_name){.gid = -1, .timeout = -1, .retry = 6};
	while (*text) {
		size_t length = strcspn(text, ",");
		char word[IBV_SYSFS_NAME_MAX];
		enum rmr_status status;

		if (text[length] == ',' && !text[length + 1])
			return error_set(RMR_INVALID, "'%s' ends with a comma", text);
		if (length >= sizeof(word))
			return error_set(RMR_NO_DEVICE, "'%s' is too long for a device", text);
		memcpy(word, text, length);
		word[length] = '\0';
		text += length + (text[length] == ',');
		if (strcmp(word, "socket") == 0) {
			name->socket = true;
		} else if (first && !strchr(word, '=')) {
			memcpy(name->device, word, length + 1);
		} else {
			status = parse_number(word, name);
			if (status != RMR_OK)
				return status;
		}
		first = false;
	}
	return RMR_OK;
}
