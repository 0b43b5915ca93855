/*
 * Which bytes a terminal can show: see client.h. Pure.
 */
#include "client.h"

size_t utf8_decode(const uint8_t *bytes, size_t length, uint32_t *code)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t count;

	if (!length)
		return 0;
	if (bytes[0] < 0x80) {
		*code = bytes[0];
		return 1;
	}
	count = bytes[0] >= 0xf0 ? 4 : bytes[0] >= 0xe0 ? 3 : 2;
	if (bytes[0] < 0xc2 || bytes[0] > 0xf4 || count > length)
		return 0;
	*code = bytes[0] & (0x7fu >> count);
	for (size_t i = 1; i < count; i++) {
		if ((bytes[i] & 0xc0) != 0x80)
			return 0;
		*code = *code << 6 | (bytes[i] & 0x3f);
	}
	/* Longer than needed, half of a pair, or beyond the last. */
	if (*code < least[count] || (*code >= 0xd800 && *code < 0xe000) || *code > 0x10ffff)
		return 0;
	return count;
}

bool utf8_is_visible(uint32_t code)
{
	/* What changes the direction of text makes it look like something else. */
	if ((code >= 0x200e && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
	    (code >= 0x2066 && code <= 0x2069))
		return false;
	return code >= 0x20 && (code < 0x7f || code >= 0xa0);
}
