/* Addresses of gRPC servers: http://HOST[:PORT] and https://HOST[:PORT]. Pure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/client/internal.h"

static bool take_port(const char *text, size_t length, char port[8])
{
	char digits[8];
	long number;

	if (length == 0 || length > 5 || strspn(text, "0123456789") < length)
		return false;
	memcpy(digits, text, length);
	digits[length] = '\0';
	number = strtol(digits, NULL, 10);
	snprintf(port, 8, "%ld", number);
	return number > 0 && number <= 65535;
}

bool control_url_parse(const char *text, struct control_url *url)
{
	const char *end, *host, *rest;
	bool is_v6;

	memset(url, 0, sizeof(*url));
	if (strncmp(text, "http://", 7) == 0)
		text += 7;
	else if (strncmp(text, "https://", 8) == 0)
		text += 8, url->is_tls = true;
	else
		return false;
	end = text + strcspn(text, "/");
	if (*end && end[1])
		return false; /* a service has no path of its own */
	is_v6 = *text == '[';
	host = text + is_v6;
	rest = is_v6 ? memchr(host, ']', (size_t)(end - host))
		     : memchr(host, ':', (size_t)(end - host));
	if (is_v6 && !rest)
		return false;
	if (!rest)
		rest = end;
	if (rest == host || (size_t)(rest - host) >= sizeof(url->host))
		return false;
	memcpy(url->host, host, (size_t)(rest - host));
	rest += is_v6;
	snprintf(url->port, sizeof(url->port), "%d", KV_CONTROL_PORT);
	if (rest < end &&
	    (*rest != ':' || !take_port(rest + 1, (size_t)(end - rest - 1), url->port)))
		return false;
	snprintf(url->authority, sizeof(url->authority), is_v6 ? "[%s]:%s" : "%s:%s", url->host,
		 url->port);
	return true;
}
