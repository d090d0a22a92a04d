/* A sweep in one way only: values as text, the whole as JSON, and the hash of that. */
#include "coordinator/sweep/sweep.h"

#include "base/memory.h"
#include "base/units.h"

#include <jansson.h>
#include <sodium/crypto_hash_sha256.h>
#include <stdio.h>
#include <string.h>

/* Fewest digits that read back as the same number, without an exponent. */
static char *number_text(double number)
{
    char text[128] = "0";
    for (int decimals = 0; decimals <= 40; decimals++) {
        (void)snprintf(text, sizeof text, "%.*f", decimals, number);
        if (strtod(text, NULL) == number)
            break;
    }
    return memory_text(text);
}

/* Free text may hold what ids are built with. */
static void print_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("/=%,:", *text))
            (void)fprintf(out, "%%%02x", (unsigned char)*text);
        else
            (void)fputc(*text, out);
    }
}

static void print_map(FILE *out, const struct sweep_map *map)
{
    const char *separator = "";
    for (size_t i = 0; i < map->type->count; i++) {
        const struct sweep_key *key = &map->type->keys[i];
        const struct sweep_value *value = sweep_get(map, i);
        if (!value)
            continue;
        scoped_free char *text = sweep_value_text(key, value);
        if (key->fallback && strcmp(text, key->fallback) == 0)
            continue;
        if (i == map->type->shorthand)
            (void)fprintf(out, "%s%s", separator, text);
        else
            (void)fprintf(out, "%s%s:%s", separator, key->name, text);
        separator = ",";
    }
}

static void print_pairs(FILE *out, const struct wire_pairs *pairs)
{
    for (size_t i = 0; i < pairs->count; i++) {
        (void)fputs(i > 0 ? "+" : "", out);
        print_escaped(out, pairs->at[i].name);
        (void)fputc('>', out);
        print_escaped(out, pairs->at[i].value);
    }
}

static void print_value(FILE *out, const struct sweep_key *key, const struct sweep_value *value)
{
    char exact[32];
    scoped_free char *number = number_text(value->number);
    switch (key->type) {
    case SWEEP_TYPE_COUNT:
        (void)fprintf(out, "%lld", (long long)value->integer);
        break;
    case SWEEP_TYPE_DURATION:
        (void)fputs(units_exact_duration(exact, sizeof exact, value->integer), out);
        break;
    case SWEEP_TYPE_RATE:
        (void)fprintf(out, "%s%s", number, value->is_factor ? "x" : "%2fs");
        break;
    case SWEEP_TYPE_FRACTION:
    case SWEEP_TYPE_NUMBER:
        (void)fputs(number, out);
        break;
    case SWEEP_TYPE_FLAG:
        (void)fputs(value->integer ? "true" : "false", out);
        break;
    case SWEEP_TYPE_MAP:
        print_map(out, value->map);
        break;
    case SWEEP_TYPE_PAIRS:
        print_pairs(out, &value->pairs);
        break;
    case SWEEP_TYPE_WORD:
    case SWEEP_TYPE_NAME:
    case SWEEP_TYPE_CPUS:
    case SWEEP_TYPE_TEXT:
        print_escaped(out, value->text);
        break;
    }
}

char *sweep_value_text(const struct sweep_key *key, const struct sweep_value *value)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return memory_text("");
    if (value->word && value->map)
        print_map(out, value->map);
    else if (value->word)
        (void)fputs(value->word->name, out);
    else
        print_value(out, key, value);
    (void)fclose(out);
    return text;
}

/* ---- JSON ---- */

static json_t *values_json(const struct sweep_key *key, const struct sweep_values *values);

static json_t *map_json(const struct sweep_map *map)
{
    json_t *object = json_object();
    for (size_t i = 0; i < map->type->count; i++)
        if (map->keys[i].count > 0)
            (void)json_object_set_new(object, map->type->keys[i].name,
                                      values_json(&map->type->keys[i], &map->keys[i]));
    return object;
}

static json_t *pairs_json(const struct wire_pairs *pairs)
{
    json_t *object = json_object();
    for (size_t i = 0; i < pairs->count; i++)
        (void)json_object_set_new(object, pairs->at[i].name, json_string(pairs->at[i].value));
    return object;
}

static json_t *value_json(const struct sweep_key *key, const struct sweep_value *value)
{
    char rate[160];
    scoped_free char *text = NULL;
    if (value->text)
        return json_string(value->text);
    if (value->map)
        return map_json(value->map);
    switch (key->type) {
    case SWEEP_TYPE_COUNT:
        return json_integer(value->integer);
    case SWEEP_TYPE_FLAG:
        return json_boolean(value->integer);
    case SWEEP_TYPE_PAIRS:
        return pairs_json(&value->pairs);
    case SWEEP_TYPE_RATE:
        text = number_text(value->number);
        (void)snprintf(rate, sizeof rate, "%s%s", text, value->is_factor ? "x" : "/s");
        return json_string(rate);
    default:
        text = sweep_value_text(key, value);
        return json_string(text);
    }
}

static json_t *values_json(const struct sweep_key *key, const struct sweep_values *values)
{
    if (!key->list)
        return value_json(key, &values->at[0]);
    json_t *array = json_array();
    for (size_t i = 0; i < values->count; i++)
        (void)json_array_append_new(array, value_json(key, &values->at[i]));
    return array;
}

static json_t *entry_json(const struct sweep_entry *entry)
{
    json_t *object = json_object();
    (void)json_object_set_new(object, "job", json_string(entry->job));
    for (size_t i = 0; i < SWEEP_CELL_KEYS; i++)
        if (i != SWEEP_JOB && entry->keys[i])
            (void)json_object_set_new(object, sweep_top_type.keys[i].name,
                                      values_json(&sweep_top_type.keys[i], entry->keys[i]));
    return object;
}

static void take_sha256(struct sweep *sweep)
{
    unsigned char hash[crypto_hash_sha256_BYTES];
    (void)crypto_hash_sha256(hash, (const unsigned char *)sweep->canonical, strlen(sweep->canonical));
    for (size_t i = 0; i < sizeof hash; i++)
        (void)snprintf(sweep->sha256 + 2 * i, 3, "%02x", hash[i]);
}

void sweep_canonicalise(struct sweep *sweep)
{
    json_t *entries = json_array();
    for (size_t i = 0; i < sweep->entry_count; i++)
        (void)json_array_append_new(entries, entry_json(&sweep->entries[i]));
    json_t *root = json_object();
    (void)json_object_set_new(root, "name", json_string(sweep->name));
    (void)json_object_set_new(root, "seed", json_integer(sweep->seed));
    (void)json_object_set_new(root, "matrix", entries);
    if (sweep->thresholds->count > 0)
        (void)json_object_set_new(root, "expect",
                                  values_json(&sweep_top_type.keys[SWEEP_EXPECT], sweep->thresholds));
    char *dumped = json_dumps(root, JSON_COMPACT);
    sweep->canonical = memory_text(dumped ? dumped : "{}");
    free(dumped);
    json_decref(root);
    take_sha256(sweep);
}
