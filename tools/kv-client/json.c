/*
 * Answers as JSON: see client.h. One object in a line, whatever the command found, so that a
 * program reads a line and looks at "status".
 */
#include <inttypes.h>
#include <string.h>

#include "client.h"

static bool is_first = true;

static void put_name(const char *name, const char *suffix)
{
	printf("%s\"%s%s\":", is_first ? "" : ",", name, suffix);
	is_first = false;
}

static void put_string(const uint8_t *bytes, size_t length)
{
	putchar('"');
	for (size_t i = 0; i < length; i++) {
		if (bytes[i] == '"' || bytes[i] == '\\')
			printf("\\%c", bytes[i]);
		else if (bytes[i] < 0x20 || bytes[i] == 0x7f)
			printf("\\u%04x", bytes[i]);
		else
			putchar(bytes[i]);
	}
	putchar('"');
}

static void put_base64(const uint8_t *bytes, size_t length)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	putchar('"');
	for (size_t i = 0; i < length; i += 3) {
		size_t left = length - i;
		uint32_t three = (uint32_t)bytes[i] << 16;

		if (left > 1)
			three |= (uint32_t)bytes[i + 1] << 8;
		if (left > 2)
			three |= bytes[i + 2];
		putchar(digits[three >> 18]);
		putchar(digits[three >> 12 & 63]);
		putchar(left > 1 ? digits[three >> 6 & 63] : '=');
		putchar(left > 2 ? digits[three & 63] : '=');
	}
	putchar('"');
}

static bool is_utf8(const uint8_t *bytes, size_t length)
{
	uint32_t code;

	for (size_t i = 0, count; i < length; i += count) {
		count = utf8_decode(bytes + i, length - i, &code);
		if (!count)
			return false;
	}
	return true;
}

void json_begin(void)
{
	fputs(is_first ? "{" : ",{", stdout);
	is_first = true;
}

void json_text(const char *name, const char *text)
{
	json_bytes(name, text, strlen(text));
}

void json_bytes(const char *name, const void *bytes, size_t length)
{
	if (is_utf8(bytes, length)) {
		put_name(name, "");
		put_string(bytes, length);
	} else {
		put_name(name, "_base64");
		put_base64(bytes, length);
	}
}

void json_number(const char *name, uint64_t number)
{
	put_name(name, "");
	printf("%" PRIu64, number);
}

void json_signed(const char *name, int64_t number)
{
	put_name(name, "");
	printf("%" PRId64, number);
}

void json_real(const char *name, double number)
{
	put_name(name, "");
	printf("%.6g", number);
}

void json_null(const char *name)
{
	put_name(name, "");
	fputs("null", stdout);
}

void json_ttl(uint64_t ttl_ms)
{
	if (ttl_ms)
		json_number("ttl_ms", ttl_ms);
	else
		json_null("ttl_ms");
}

void json_bool(const char *name, bool value)
{
	put_name(name, "");
	fputs(value ? "true" : "false", stdout);
}

void json_array(const char *name)
{
	put_name(name, "");
	putchar('[');
	is_first = true;
}

void json_array_end(void)
{
	putchar(']');
	is_first = false;
}

void json_close(void)
{
	putchar('}');
	is_first = false;
}

void json_end(void)
{
	fputs("}\n", stdout);
	is_first = true;
}
