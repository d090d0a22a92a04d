#include "coordinator/summary/summary_internal.h"

#include "base/memory.h"

#include <jansson.h>
#include <string.h>

static char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return memory_text(text ? text : "");
}

static void add_host(struct summary *summary, const json_t *host)
{
    const json_t *list = json_object_get(host, "findings");
    size_t count = summary->disturber_count;
    summary->disturbers =
        memory_resized(summary->disturbers, count + json_array_size(list) + 1, sizeof *summary->disturbers);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *finding = json_array_get(list, i);
        scoped_free char *severity = text_of(finding, "severity");
        summary->disturbers[count++] = (struct summary_disturber){.host = text_of(host, "host"),
                                                                  .id = text_of(finding, "id"),
                                                                  .what = text_of(finding, "what"),
                                                                  .remedy = text_of(finding, "remedy"),
                                                                  .severe = strcmp(severity, "severe") == 0,
                                                                  .note = strcmp(severity, "note") == 0};
    }
    summary->disturber_count = count;
}

void summary_fill_disturbers(struct summary *summary)
{
    json_t *list = summary->environment_json ? json_loads(summary->environment_json, 0, NULL) : NULL;
    for (size_t i = 0; i < json_array_size(list); i++)
        add_host(summary, json_array_get(list, i));
    for (size_t i = 0; i < summary->disturber_count; i++)
        summary->disturber_notes += summary->disturbers[i].note;
    json_decref(list);
}

void summary_free_disturbers(struct summary *summary)
{
    for (size_t i = 0; i < summary->disturber_count; i++) {
        free(summary->disturbers[i].host);
        free(summary->disturbers[i].id);
        free(summary->disturbers[i].what);
        free(summary->disturbers[i].remedy);
    }
    free(summary->disturbers);
}
