/*
 * Reflection: what the service is made of, for clients that have no .proto file.
 *
 * The build puts the description of all our files into the program (control_descriptors), as a
 * FileDescriptorSet: field 1, repeated, each a FileDescriptorProto. Clients want those as bytes, so
 * they are never unpacked; this walks through them for names alone. Our files import nothing, and
 * have no extensions. What is walked through is our own and right; only names come from clients.
 *
 * v1 and v1alpha are the same on the wire.
 */
#include <stdio.h>
#include <string.h>

#include "control/proto/grpc/reflection/v1/reflection.pb-c.h"
#include "control/server/internal.h"

#define SERVICES_MOST 8u
#define NAME_MOST     256u
#define ANSWERS_MOST  (64u << 10) /* bytes of answers that were not taken */

/* protobuf-c's names are long. */
#define ASKED(what)  GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##what
#define ANSWER(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##what

/* Fields of google.protobuf.FileDescriptorProto, and of what is in it. */
enum {
	FILE_NAME = 1,
	FILE_PACKAGE = 2,
	FILE_MESSAGE = 4,
	FILE_ENUM = 5,
	FILE_SERVICE = 6,
	ANY_NAME = 1,
	MESSAGE_NESTED = 3,
	MESSAGE_ENUM = 4,
	SERVICE_METHOD = 2,
};

extern const uint8_t control_descriptors[];
extern const size_t control_descriptors_length;

/* ------------------------------------------------------------------------------------------
 * Walking
 */

struct piece {
	const uint8_t *at;
	size_t length;
};

static uint64_t take_number(struct piece *from)
{
	uint64_t number = 0;

	for (unsigned shift = 0; from->length && shift < 64; shift += 7) {
		uint8_t byte = *from->at;

		from->at++;
		from->length--;
		number |= (uint64_t)(byte & 127) << shift;
		if (!(byte & 128))
			break;
	}
	return number;
}

/* The next field that has bytes; others are skipped. False: there are no more. */
static bool take_field(struct piece *from, unsigned *number, struct piece *field)
{
	while (from->length) {
		uint64_t tag = take_number(from), length;

		if ((tag & 7) == 0) {
			(void)take_number(from);
			continue;
		}
		length = (tag & 7) == 2 ? take_number(from) : (tag & 7) == 5 ? 4 : 8;
		if (length > from->length)
			return false;
		*field = (struct piece){from->at, (size_t)length};
		from->at += length;
		from->length -= (size_t)length;
		*number = (unsigned)(tag >> 3);
		if ((tag & 7) == 2)
			return true;
	}
	return false;
}

static struct piece find_field(struct piece in, unsigned wanted)
{
	struct piece field;
	unsigned number;

	while (take_field(&in, &number, &field)) {
		if (number == wanted)
			return field;
	}
	return (struct piece){(const uint8_t *)"", 0};
}

static bool is_same(struct piece piece, const char *text)
{
	return piece.length == strlen(text) && memcmp(piece.at, text, piece.length) == 0;
}

/* `text` without "NAME." before it, or "" if it is NAME itself; NULL: it begins otherwise. */
static const char *behind(const char *text, struct piece name)
{
	if (strncmp(text, (const char *)name.at, name.length) != 0)
		return NULL;
	text += name.length;
	return *text == '.' ? text + 1 : *text ? NULL : text;
}

/* ------------------------------------------------------------------------------------------
 * Looking up
 */

/* Whether `symbol` is this message, service or enum, or something in it. */
static bool has_symbol(struct piece in, unsigned kind, const char *symbol)
{
	const char *rest = behind(symbol, find_field(in, ANY_NAME));
	struct piece field;
	unsigned number;

	if (!rest)
		return false;
	if (!*rest)
		return true;
	while (take_field(&in, &number, &field)) {
		if (kind == FILE_MESSAGE && number == MESSAGE_NESTED &&
		    has_symbol(field, FILE_MESSAGE, rest))
			return true;
		if (kind == FILE_MESSAGE && number == MESSAGE_ENUM &&
		    has_symbol(field, FILE_ENUM, rest))
			return true;
		if (kind == FILE_SERVICE && number == SERVICE_METHOD &&
		    is_same(find_field(field, ANY_NAME), rest))
			return true;
	}
	return false;
}

static bool file_has_symbol(struct piece file, const char *symbol)
{
	const char *rest = behind(symbol, find_field(file, FILE_PACKAGE));
	struct piece field;
	unsigned number;

	if (!rest || !*rest)
		return false;
	while (take_field(&file, &number, &field)) {
		if ((number == FILE_MESSAGE || number == FILE_ENUM || number == FILE_SERVICE) &&
		    has_symbol(field, number, rest))
			return true;
	}
	return false;
}

/* The file of that name, or with that symbol. */
static bool find_file(const char *name, bool by_symbol, struct piece *found)
{
	struct piece all = {control_descriptors, control_descriptors_length};
	unsigned number;

	while (take_field(&all, &number, found)) {
		if (by_symbol ? file_has_symbol(*found, name)
			      : is_same(find_field(*found, FILE_NAME), name))
			return true;
	}
	return false;
}

/* ------------------------------------------------------------------------------------------
 * Answers
 */

/* One answer, with all that it may point at. */
struct answer {
	Grpc__Reflection__V1__ServerReflectionResponse response;
	Grpc__Reflection__V1__ErrorResponse error;
	Grpc__Reflection__V1__FileDescriptorResponse files;
	Grpc__Reflection__V1__ListServiceResponse list;
	Grpc__Reflection__V1__ServiceResponse services[SERVICES_MOST];
	Grpc__Reflection__V1__ServiceResponse *pointers[SERVICES_MOST];
	char names[SERVICES_MOST][NAME_MOST];
	ProtobufCBinaryData bytes;
};

static void answer_error(struct answer *answer, enum grpc_status status, const char *text)
{
	grpc__reflection__v1__error_response__init(&answer->error);
	answer->error.error_code = (int32_t)status;
	answer->error.error_message = (char *)text;
	answer->response.message_response_case = ANSWER(ERROR_RESPONSE);
	answer->response.error_response = &answer->error;
}

static void answer_file(struct answer *answer, const char *name, bool by_symbol)
{
	struct piece found;

	if (!find_file(name, by_symbol, &found)) {
		answer_error(answer, GRPC_NOT_FOUND, by_symbol ? "no such symbol" : "no such file");
		return;
	}
	answer->bytes = (ProtobufCBinaryData){.data = (uint8_t *)found.at, .len = found.length};
	grpc__reflection__v1__file_descriptor_response__init(&answer->files);
	answer->files.file_descriptor_proto = &answer->bytes;
	answer->files.n_file_descriptor_proto = 1;
	answer->response.message_response_case = ANSWER(FILE_DESCRIPTOR_RESPONSE);
	answer->response.file_descriptor_response = &answer->files;
}

/* Writes the full names of all services; returns how many. */
static size_t list_services(char names[SERVICES_MOST][NAME_MOST])
{
	struct piece all = {control_descriptors, control_descriptors_length}, file, field;
	unsigned number, inner;
	size_t count = 0;

	while (take_field(&all, &number, &file)) {
		struct piece package = find_field(file, FILE_PACKAGE);

		while (take_field(&file, &inner, &field) && count < SERVICES_MOST) {
			struct piece name = find_field(field, ANY_NAME);

			if (inner == FILE_SERVICE)
				snprintf(names[count++], NAME_MOST, "%.*s.%.*s",
					 (int)package.length, (const char *)package.at,
					 (int)name.length, (const char *)name.at);
		}
	}
	return count;
}

static void answer_list(struct answer *answer)
{
	grpc__reflection__v1__list_service_response__init(&answer->list);
	answer->list.n_service = list_services(answer->names);
	for (size_t i = 0; i < answer->list.n_service; i++) {
		grpc__reflection__v1__service_response__init(&answer->services[i]);
		answer->services[i].name = answer->names[i];
		answer->pointers[i] = &answer->services[i];
	}
	answer->list.service = answer->pointers;
	answer->response.message_response_case = ANSWER(LIST_SERVICES_RESPONSE);
	answer->response.list_services_response = &answer->list;
}

static void make_answer(struct answer *answer, Grpc__Reflection__V1__ServerReflectionRequest *asked)
{
	grpc__reflection__v1__server_reflection_response__init(&answer->response);
	answer->response.valid_host = asked->host;
	answer->response.original_request = asked;
	switch (asked->message_request_case) {
	case ASKED(FILE_BY_FILENAME):
		answer_file(answer, asked->file_by_filename, false);
		break;
	case ASKED(FILE_CONTAINING_SYMBOL):
		answer_file(answer, asked->file_containing_symbol, true);
		break;
	case ASKED(LIST_SERVICES):
		answer_list(answer);
		break;
	case ASKED(FILE_CONTAINING_EXTENSION):
	case ASKED(ALL_EXTENSION_NUMBERS_OF_TYPE):
		answer_error(answer, GRPC_NOT_FOUND, "there are no extensions");
		break;
	default:
		answer_error(answer, GRPC_INVALID_ARGUMENT, "nothing was asked");
		break;
	}
}

void method_reflect(struct rpc *rpc, const ProtobufCMessage *message)
{
	struct answer answer;

	if (!message) {
		rpc_finish(rpc, GRPC_OK, "%s", "");
		return;
	}
	if (rpc->output.end - rpc->output.begin > ANSWERS_MOST) {
		rpc_finish(rpc, GRPC_RESOURCE_EXHAUSTED, "take the answers before you ask more");
		return;
	}
	make_answer(&answer, (Grpc__Reflection__V1__ServerReflectionRequest *)message);
	(void)rpc_send(rpc, &answer.response.base);
}
