# cmake -DINPUT=file -DOUTPUT=file.c -DNAME=symbol -P EmbedFile.cmake: the bytes of a file as an
# array in C, and its length.
file(READ ${INPUT} bytes HEX)
string(LENGTH "${bytes}" digits)
math(EXPR length "${digits} / 2")
string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "#include <stddef.h>\n#include <stdint.h>\n"
  "extern const uint8_t ${NAME}[];\nextern const size_t ${NAME}_length;\n"
  "const uint8_t ${NAME}[] = {\n${bytes}};\nconst size_t ${NAME}_length = ${length};\n")
