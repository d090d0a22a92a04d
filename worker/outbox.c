#include "worker/outbox.h"

#include "base/memory.h"

void outbox_add(struct outbox *outbox, const struct wire_ack *key, struct wire_bytes frame)
{
    struct outbox_part **end = &outbox->first;
    struct outbox_part *part = memory_zeroed(1, sizeof *part);
    part->key = *key;
    part->frame = frame;
    while (*end)
        end = &(*end)->next;
    *end = part;
    outbox->count++;
}

/* Unlinks and frees what *link points at. */
static void remove_part(struct outbox *outbox, struct outbox_part **link)
{
    struct outbox_part *part = *link;
    *link = part->next;
    outbox->count--;
    free(part->frame.data);
    free(part);
}

bool outbox_acknowledge(struct outbox *outbox, const struct wire_ack *key)
{
    for (struct outbox_part **link = &outbox->first; *link; link = &(*link)->next) {
        const struct wire_ack *own = &(*link)->key;
        if (own->group != key->group || own->attempt != key->attempt || own->go != key->go ||
            own->part != key->part)
            continue;
        remove_part(outbox, link);
        return true;
    }
    return false;
}

void outbox_drop(struct outbox *outbox, int64_t group, int64_t attempt)
{
    struct outbox_part **link = &outbox->first;
    while (*link) {
        if ((*link)->key.group == group && (*link)->key.attempt == attempt)
            remove_part(outbox, link);
        else
            link = &(*link)->next;
    }
}

void outbox_clear(struct outbox *outbox)
{
    while (outbox->first)
        remove_part(outbox, &outbox->first);
}
