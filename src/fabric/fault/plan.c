/*
 * Reading a fault plan: one table of keys, with the range of each and what it needs to have any
 * effect. Pure; the grammar and the meaning are in plan.h.
 */
#include "fabric/fault/plan.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define SECOND_US     1000000u
#define NAME_MAX_SIZE 32

#define DEFAULT_TEAR_US 20

struct plan_key {
	const char *name;
	size_t offset; /* of its uint64_t in struct fault_plan */
	uint64_t least, most;
	const char *needs; /* keys of which one must be there too, or NULL */
};

#define KEY(field, least, most, needs)                                                             \
	{                                                                                          \
#field, offsetof(struct fault_plan, field), least, most, needs                     \
	}

/* A count of which the N-th is meant begins at 1. */
static const struct plan_key keys[] = {
	KEY(seed, 0, UINT64_MAX, NULL),
	KEY(delay_us, 0, 10 * SECOND_US, NULL),
	KEY(delay_percent, 0, 100, "delay_us"),
	KEY(reorder, 0, 1, NULL),
	KEY(tear, 0, 1, NULL),
	KEY(tear_percent, 0, 100, NULL),
	KEY(tear_us, 0, SECOND_US, "tear tear_percent"),
	KEY(drop_at, 1, UINT64_MAX, NULL),
	KEY(drop_ppm, 0, 1000000, NULL),
	KEY(drop_limit, 1, UINT64_MAX, "drop_at drop_ppm"),
	KEY(refuse_region, 1, UINT64_MAX, NULL),
	KEY(refuse_region_percent, 0, 100, NULL),
	KEY(refuse_connect, 1, UINT64_MAX, NULL),
	KEY(refuse_connect_percent, 0, 100, NULL),
	KEY(stall_percent, 0, 100, NULL),
	KEY(stall_us, 0, SECOND_US, "stall_percent"),
	KEY(offload, 0, 1, NULL),
};

#define KEY_COUNT (sizeof(keys) / sizeof(keys[0]))

static enum rmr_status unknown_key(const char *name, int length)
{
	char names[400] = "";
	size_t used = 0;

	for (size_t i = 0; i < KEY_COUNT; i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, " %s", keys[i].name);
	return error_set(RMR_INVALID, "fault plan: there is no key '%.*s'; there are:%s", length,
			 name, names);
}

static int find_key(const char *name, size_t length)
{
	for (size_t i = 0; i < KEY_COUNT; i++) {
		if (strlen(keys[i].name) == length && memcmp(keys[i].name, name, length) == 0)
			return (int)i;
	}
	return -1;
}

/* A whole number, decimal or 0x..., and nothing else. */
static bool parse_number(const char *text, size_t length, uint64_t *number)
{
	char copy[NAME_MAX_SIZE];
	char *end;

	if (length == 0 || length >= sizeof(copy) || !isdigit((unsigned char)text[0]))
		return false;
	memcpy(copy, text, length);
	copy[length] = '\0';
	errno = 0;
	*number = strtoull(copy, &end, strncasecmp(copy, "0x", 2) == 0 ? 16 : 10);
	return errno == 0 && *end == '\0';
}

/* One "key=value" of the plan. */
static enum rmr_status parse_item(const char *item, size_t length, struct fault_plan *plan,
				  bool *given)
{
	const char *equals = memchr(item, '=', length);
	size_t name_length = equals ? (size_t)(equals - item) : length;
	int index = find_key(item, name_length);
	uint64_t value;

	if (length == 0)
		return error_set(RMR_INVALID, "fault plan: nothing between two commas, or after "
					      "the last");
	if (index < 0)
		return unknown_key(item, (int)name_length);
	if (!equals || !parse_number(equals + 1, length - name_length - 1, &value))
		return error_set(RMR_INVALID, "fault plan: '%.*s': write %s=NUMBER", (int)length,
				 item, keys[index].name);
	if (value < keys[index].least || value > keys[index].most)
		return error_set(RMR_INVALID, "fault plan: '%.*s': %s goes from %llu to %llu",
				 (int)length, item, keys[index].name,
				 (unsigned long long)keys[index].least,
				 (unsigned long long)keys[index].most);
	if (given[index])
		return error_set(RMR_INVALID, "fault plan: %s is given twice", keys[index].name);
	given[index] = true;
	memcpy((char *)plan + keys[index].offset, &value, sizeof(value));
	return RMR_OK;
}

static bool is_given(const bool *given, const char *name)
{
	return given[find_key(name, strlen(name))];
}

/* What belongs together, and what excludes each other. */
static enum rmr_status check_needs(const bool *given)
{
	for (size_t i = 0; i < KEY_COUNT; i++) {
		const char *need = keys[i].needs;
		bool met = !need || !given[i];

		while (!met && *need) {
			size_t length = strcspn(need, " ");

			met = given[find_key(need, length)];
			need += length + (need[length] == ' ');
		}
		if (!met)
			return error_set(RMR_INVALID,
					 "fault plan: %s has no effect without (one of): %s",
					 keys[i].name, keys[i].needs);
	}
	if (is_given(given, "tear") && is_given(given, "tear_percent"))
		return error_set(RMR_INVALID, "fault plan: give tear or tear_percent, not both");
	return RMR_OK;
}

enum rmr_status fault_plan_parse(const char *text, struct fault_plan *out)
{
	struct fault_plan plan = {.seed = 1, .delay_percent = 100, .tear_us = DEFAULT_TEAR_US};
	bool given[KEY_COUNT] = {false};
	enum rmr_status status;

	while (text && *text) {
		size_t length = strcspn(text, ",");

		status = parse_item(text, length, &plan, given);
		/* A comma promises another item. */
		if (status == RMR_OK && text[length] == ',' && text[length + 1] == '\0')
			status = parse_item("", 0, &plan, given);
		if (status != RMR_OK)
			return status;
		text += length + (text[length] == ',');
	}
	status = check_needs(given);
	if (status != RMR_OK)
		return status;
	if (plan.tear)
		plan.tear_percent = 100;
	if (!is_given(given, "drop_limit"))
		plan.drop_limit = UINT64_MAX;
	*out = plan;
	return RMR_OK;
}
