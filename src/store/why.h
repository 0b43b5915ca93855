/*
 * For the x_is_valid() functions: says why not.
 */
#ifndef STORE_WHY_H
#define STORE_WHY_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

/* Writes the reason, and answers false. */
__attribute__((format(printf, 3, 4))) static inline bool invalid(char *why, size_t size,
								 const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, size, format, arguments);
	va_end(arguments);
	return false;
}

#endif
