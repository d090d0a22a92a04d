#include "coordinator/sweep/sweep_schema.h"

#include "base/memory.h"
#include "coordinator/sweep/sweep_keys.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define DECIMAL    "[0-9]+(\\.[0-9]+)?"
#define UNITS      "(ns|us|ms|s|m|h)"
#define NAME       "^[A-Za-z0-9_+][A-Za-z0-9._+-]{0,63}$"
#define CPUS       "[0-9]+(-[0-9]+)?"
#define MOST_PAIRS 64

/* Scalars are read by what their key wants, with or without quotes: "40" is a count, 40 is a name. */
static const char name_schema[] = "{\"type\": [\"string\", \"number\", \"boolean\"], \"minimum\": 0}";
static const char text_schema[] = "{\"type\": [\"string\", \"number\", \"boolean\"], \"minLength\": 1}";
static const char flag_schema[] = "{\"enum\": [true, false, \"true\", \"false\"]}";

/* What sweep_check_map demands of one map. */
static const struct {
    const struct sweep_map_type *type;
    const char *rules;
} map_rules[] = {
    {&sweep_runtime_type,
     "{\"dependentRequired\": {\"path\": [\"jobs\"]},"
     " \"if\": {\"properties\": {\"kind\": {\"const\": \"libuv\"}}},"
     " \"then\": {\"properties\": {\"python\": false, \"eager\": false, \"jobs\": false, \"path\": false}}}"},
    {&sweep_fail_type,
     "{\"oneOf\": [{\"required\": [\"children\"]}, {\"required\": [\"fraction\"]}],"
     " \"if\": {\"properties\": {\"on_cancel\": {\"const\": \"cleanup\"}}, \"required\": [\"on_cancel\"]},"
     " \"then\": {\"required\": [\"cleanup\"]}, \"else\": {\"properties\": {\"cleanup\": false}}}"},
    {&sweep_expect_type, "{\"anyOf\": [{\"required\": [\"min\"]}, {\"required\": [\"max\"]}]}"},
};

static json_t *read(const char *text)
{
    return json_loads(text, 0, NULL);
}

static json_t *pattern(const char *text)
{
    return json_pack("{s:s, s:s}", "type", "string", "pattern", text);
}

/* Of the decimals with a unit, those above 0. */
static json_t *above_zero(json_t *schema)
{
    json_object_set_new(schema, "not", json_pack("{s:s}", "pattern", "^0+(\\.0+)?[^0-9.]*$"));
    return schema;
}

static json_t *words_schema(const struct sweep_word *words, bool later)
{
    json_t *array = json_array();
    for (; words && words->name; words++)
        if (words->later == later)
            json_array_append_new(array, json_string(words->name));
    return json_pack("{s:o}", "enum", array);
}

static json_t *any_of(json_t *first, json_t *second)
{
    return json_pack("{s:[o, o]}", "anyOf", first, second);
}

/* A word beside those of the table is a name: of a coroutine of the user's own. */
static json_t *word_schema(const struct sweep_key *key)
{
    json_t *known = words_schema(key->words, false);
    if (!key->open)
        return known;
    json_t *other = pattern(NAME);
    json_object_set_new(other, "not", words_schema(key->words, true));
    return any_of(known, other);
}

static json_t *plain_name_schema(const struct sweep_key *key)
{
    json_t *schema = read(name_schema);
    (void)key;
    json_object_set_new(schema, "pattern", json_string(NAME));
    return schema;
}

static json_t *plain_text_schema(const struct sweep_key *key)
{
    (void)key;
    return read(text_schema);
}

static json_t *map_schema(const struct sweep_map_type *type);

static json_t *count_schema(const struct sweep_key *key)
{
    json_t *schema = any_of(json_pack("{s:s, s:I, s:I}", "type", "integer", "minimum", (json_int_t)key->least,
                                      "maximum", (json_int_t)key->most),
                            pattern("^" DECIMAL "[kM]?$"));
    json_t *choices = json_object_get(schema, "anyOf");
    if (key->least > 0)
        above_zero(json_array_get(choices, 1));
    if (key->words)
        json_array_append_new(choices, words_schema(key->words, false));
    if (key->map)
        json_array_append_new(choices, map_schema(key->map));
    return schema;
}

static json_t *duration_schema(const struct sweep_key *key)
{
    json_t *schema = pattern("^" DECIMAL UNITS "$");
    return key->least > 0 ? above_zero(schema) : schema;
}

static json_t *rate_schema(const struct sweep_key *key)
{
    (void)key;
    return above_zero(pattern("^" DECIMAL "([kM]?/s|x)$"));
}

static json_t *fraction_schema(const struct sweep_key *key)
{
    (void)key;
    return any_of(json_pack("{s:s, s:i, s:i}", "type", "number", "exclusiveMinimum", 0, "maximum", 1),
                  above_zero(pattern("^" DECIMAL "%?$")));
}

static json_t *number_schema(const struct sweep_key *key)
{
    (void)key;
    return any_of(json_pack("{s:s}", "type", "number"), pattern("^(-?" DECIMAL "|" DECIMAL UNITS ")$"));
}

static json_t *plain_flag_schema(const struct sweep_key *key)
{
    (void)key;
    return read(flag_schema);
}

/* Only jobs have free names, and a coroutine is not called what a built-in job is. */
static json_t *pairs_schema(const struct sweep_key *key)
{
    json_t *taken = json_array();
    (void)key;
    for (const struct sweep_word *word = sweep_job_type.keys[SWEEP_JOB_KIND].words; word->name; word++)
        json_array_append_new(taken, json_string(word->name));
    return json_pack("{s:s, s:i, s:i, s:{s:s, s:{s:o}}, s:o}", "type", "object", "minProperties", 1,
                     "maxProperties", MOST_PAIRS, "propertyNames", "pattern", NAME, "not", "enum", taken,
                     "additionalProperties", read(text_schema));
}

static json_t *cpus_schema(const struct sweep_key *key)
{
    json_t *schema = any_of(words_schema(key->words, false), pattern("^" CPUS "(," CPUS ")*$"));
    json_array_append_new(json_object_get(schema, "anyOf"),
                          json_pack("{s:s, s:i}", "type", "integer", "minimum", 0));
    return schema;
}

static json_t *map_or_word_schema(const struct sweep_key *key)
{
    return map_schema(key->map);
}

static json_t *(*const schemas[])(const struct sweep_key *) = {
    [SWEEP_TYPE_WORD] = word_schema,         [SWEEP_TYPE_NAME] = plain_name_schema,
    [SWEEP_TYPE_TEXT] = plain_text_schema,   [SWEEP_TYPE_COUNT] = count_schema,
    [SWEEP_TYPE_DURATION] = duration_schema, [SWEEP_TYPE_RATE] = rate_schema,
    [SWEEP_TYPE_FRACTION] = fraction_schema, [SWEEP_TYPE_NUMBER] = number_schema,
    [SWEEP_TYPE_FLAG] = plain_flag_schema,   [SWEEP_TYPE_MAP] = map_or_word_schema,
    [SWEEP_TYPE_PAIRS] = pairs_schema,       [SWEEP_TYPE_CPUS] = cpus_schema,
};

static json_t *key_schema(const struct sweep_key *key)
{
    json_t *schema = schemas[key->type](key);
    if (key->list) {
        json_t *list = json_pack("{s:s, s:O, s:i}", "type", "array", "items", schema, "minItems", 1);
        schema = any_of(schema, list);
    }
    scoped_free char *text =
        key->fallback ? memory_format("%s (default: %s)", key->help, key->fallback) : memory_text(key->help);
    json_object_set_new(schema, "description", json_string(text));
    return schema;
}

/* Keys of cells stand in entries and at the top: said once, in $defs. */
static json_t *property_schema(const struct sweep_map_type *type, size_t i)
{
    bool of_cells = (type == &sweep_top_type || type == &sweep_entry_type) && i < SWEEP_CELL_KEYS;
    if (!of_cells)
        return key_schema(&type->keys[i]);
    scoped_free char *reference = memory_format("#/$defs/%s", type->keys[i].name);
    return json_pack("{s:s}", "$ref", reference);
}

static json_t *object_schema(const struct sweep_map_type *type)
{
    json_t *properties = json_object();
    json_t *required = json_array();
    for (size_t i = 0; i < type->count; i++) {
        const struct sweep_key *key = &type->keys[i];
        if (!key->later)
            json_object_set_new(properties, key->name, property_schema(type, i));
        if (key->required)
            json_array_append_new(required, json_string(key->name));
    }
    json_t *object =
        json_pack("{s:s, s:o, s:b}", "type", "object", "properties", properties, "additionalProperties", 0);
    if (json_array_size(required) > 0)
        json_object_set(object, "required", required);
    json_decref(required);
    for (size_t i = 0; i < sizeof map_rules / sizeof *map_rules; i++)
        if (map_rules[i].type == type) {
            json_t *rules = read(map_rules[i].rules);
            json_object_update(object, rules);
            json_decref(rules);
        }
    return object;
}

static json_t *map_schema(const struct sweep_map_type *type)
{
    json_t *object = object_schema(type);
    return type->shorthand < type->count
               ? any_of(schemas[type->keys[type->shorthand].type](&type->keys[type->shorthand]), object)
               : object;
}

/* What every job needs stands at the top or in each entry. */
static json_t *everywhere(const char *name)
{
    return json_pack("{s:[{s:[s]}, {s:[s], s:{s:{s:[s], s:{s:[s]}}}}]}", "anyOf", "required", name,
                     "required", "matrix", "properties", "matrix", "required", name, "items", "required",
                     name);
}

static json_t *top_schema(void)
{
    json_t *schema = json_pack("{s:s, s:s}", "$schema", "https://json-schema.org/draft/2020-12/schema",
                               "title", "A sweep of corefan " COREFAN_VERSION);
    json_t *object = object_schema(&sweep_top_type);
    json_object_update(schema, object);
    json_decref(object);
    json_t *shared = json_object();
    json_t *needed = json_array();
    for (size_t i = 0; i < SWEEP_CELL_KEYS; i++) {
        const struct sweep_key *key = &sweep_top_type.keys[i];
        if (!key->later)
            json_object_set_new(shared, key->name, key_schema(key));
        if (i == SWEEP_JOB || key->needed_by == SWEEP_JOB_ALL)
            json_array_append_new(needed, everywhere(key->name));
    }
    json_object_set_new(schema, "allOf", needed);
    json_object_set_new(schema, "$defs", shared);
    return schema;
}

int sweep_schema_print(FILE *out)
{
    json_t *schema = top_schema();
    int status = json_dumpf(schema, out, JSON_INDENT(2) | JSON_ENSURE_ASCII);
    json_decref(schema);
    return status == 0 && fputc('\n', out) != EOF && fflush(out) == 0 ? 0 : -1;
}
