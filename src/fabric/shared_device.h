/*
 * Devices of this process: all who use the same one share it, with its helper thread and its
 * protection domain. On the public fabric alone; here because clients of the store and programs of
 * the easy library both need it. Any thread.
 */
#ifndef FABRIC_SHARED_DEVICE_H
#define FABRIC_SHARED_DEVICE_H

#include <remora/fabric.h>

/* As rmr_device_open(). */
RMR_MUST_CHECK enum rmr_status device_take(const char *name, struct rmr_device **device);
/* Closes it if nobody else has it. Legal on NULL. */
void device_give(struct rmr_device *device);

#endif
