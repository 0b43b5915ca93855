# Stores with a planted bug, each with a store_readers_test of its own, which has to notice it.
#
# A bug is a change of one source file. The changed copy is made when CMake runs, and made again
# when the file changes; a text that is not found in it exactly once ends the configuration, so that
# who changes the code adapts its bug. The copy comes before the archive when the program is linked,
# whose own object is then not used. A bug in a header is one of reader.c, which is built with the
# changed header.

add_library(store-readers-main OBJECT store_readers_test.c)
target_link_libraries(store-readers-main PUBLIC remora-store-tests)
set(store_planted "")

# remora_plant(NAME FILE TEST OLD NEW [OLD NEW...]): FILE is in src/store; TEST is the one of
# store_readers_test that notices.
function(remora_plant name file test)
  set(source ${CMAKE_SOURCE_DIR}/src/store/${file})
  set(copy ${CMAKE_CURRENT_BINARY_DIR}/planted/${name}/store/${file})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
  file(READ ${source} text)
  math(EXPR last "${ARGC} - 1")
  foreach(i RANGE 3 ${last} 2)
    math(EXPR next "${i} + 1")
    string(FIND "${text}" "${ARGV${i}}" first_at)
    string(FIND "${text}" "${ARGV${i}}" last_at REVERSE)
    if(first_at EQUAL -1 OR NOT first_at EQUAL last_at)
      message(FATAL_ERROR "planted bug ${name}: src/store/${file} does not have this exactly once, "
        "adapt tests/store/planted.cmake:\n${ARGV${i}}")
    endif()
    string(REPLACE "${ARGV${i}}" "${ARGV${next}}" text "${text}")
  endforeach()
  file(WRITE ${copy}.new "${text}")
  configure_file(${copy}.new ${copy} COPYONLY)
  if(file MATCHES "[.]h$")
    add_executable(store_planted_${name} ${CMAKE_SOURCE_DIR}/src/store/reader.c)
    target_include_directories(store_planted_${name} BEFORE PRIVATE
      ${CMAKE_CURRENT_BINARY_DIR}/planted/${name})
  else()
    add_executable(store_planted_${name} ${copy})
  endif()
  target_link_libraries(store_planted_${name} PRIVATE store-readers-main)
  set_target_properties(store_planted_${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests/planted)
  set(store_planted ${store_planted} $<TARGET_FILE:store_planted_${name}>=${test} PARENT_SCOPE)
endfunction()

remora_plant(version_before_body put.c updated
[[
		memcpy(draft.value, put->value, put->value_length);
	return store_draft_commit(worker, put, &draft, info);
]] [[
		put_late = draft.value;
	status = store_draft_commit(worker, put, &draft, info);
	if (status == STORE_OK && put->value_length)
		memcpy(put_late, put->value, put->value_length);
	return status;
]] [[
	struct store_draft draft;
	enum store_status status = store_draft_begin(worker, put, &draft);
]] [[
	struct store_draft draft;
	void *put_late = NULL;
	enum store_status status = store_draft_begin(worker, put, &draft);
]])

# Short values are copied so fast that the test would need luck.
remora_plant(only_a_glance reader_glance.h updated
  "	if (__builtin_expect(!reader_is_unchanged(reader, bucket, header, shrinks), 0))"
  "	if (false)"
[[
	racy_copy(value, (const uint8_t *)item + item_value_offset(key_length, 0), length);
]] [[
	for (volatile int i = 0; i < 2000; i++)
		;
	racy_copy(value, (const uint8_t *)item + item_value_offset(key_length, 0), length);
]])

remora_plant(any_depth_will_do reader_glance.h growing
  "	    __builtin_expect(hash_bits(hash, bucket_depth(header)) != number, 0))"
  "	    false)")

remora_plant(no_second_look reader.c updated
  "		if (is_unchanged(reader, &sight) ||"
  "		if (true ||")

remora_plant(sequence_stays index.c updated
  "bucket_sequence(lock->header) + 1" "bucket_sequence(lock->header) + 0")

remora_plant(late_kill put.c updated
[[
	bool is_free = life_kill(worker, item);
]] [[
	bool is_free;
]] [[
	index_unlock(lock);
	if (is_free)
]] [[
	index_unlock(lock);
	for (volatile int i = 0; i < 20000; i++)
		;
	is_free = life_kill(worker, item);
	if (is_free)
]])

remora_plant(version_of_the_dead life.c updated
[[
	atomic_store_explicit(&item->version, 0, memory_order_release);
	if (item_pins(item) == 0)
]] [[
	if (item_pins(item) == 0)
]])

remora_plant(slot_of_the_moved life.c updated
  "	index_replace(&slot, slot_make(slot_tag(slot.slot), slot_class(slot.slot), to));" "")

remora_plant(checksum_of_the_key_alone item.c updated
  "item_size_of(item_get_lengths(item)) - sizeof(*item))"
  "item_key_length(item_get_lengths(item)))")

remora_plant(count_before_the_split index_grow.c growing
[[
	done = redistribute(index, &lower, &upper);
]] [[
	atomic_store(&upper.bucket->header, bucket_header(0, 0, depth + 1));
	atomic_store(&index->header->bucket_count, count + 1);
	for (volatile int i = 0; i < 2000; i++)
		;
	done = redistribute(index, &lower, &upper);
]])

remora_plant(expired_is_found reader_glance.h updated
  "!reader_is_alive(reader, found->expires_ms)" "found->lengths == 0")

find_package(Python3 COMPONENTS Interpreter REQUIRED)
remora_script_test(store_planted_test
  COMMAND Python3::Interpreter ${CMAKE_CURRENT_SOURCE_DIR}/planted_test.py
    $<TARGET_FILE:store_readers_test> ${store_planted})
