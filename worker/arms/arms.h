/* arms.h: the resume functions of arms/, for the table in arm.c only. */
#ifndef COREFAN_WORKER_ARMS_ARMS_H
#define COREFAN_WORKER_ARMS_ARMS_H

#include "worker/runtime/fanout.h"

enum step sequential_resume(struct coro *coro, struct activation *activation);
enum step gather_resume(struct coro *coro, struct activation *activation);
enum step gather_return_exceptions_resume(struct coro *coro, struct activation *activation);
enum step tasks_resume(struct coro *coro, struct activation *activation);
enum step taskgroup_resume(struct coro *coro, struct activation *activation);

#endif
