#include "coordinator/sweep/sweep.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/units.h"
#include "coordinator/sweep/sweep_tree.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One value on its way from the tree: what is read, under which name messages speak of it. */
struct reading {
    const struct sweep_key *key;
    const char *subject;
    const struct sweep_node *node;
    struct sweep_mistakes *mistakes;
};

static struct sweep_map *read_map(const struct reading *reading, const struct sweep_map_type *type);
static void free_map(struct sweep_map *map);

static const char *const wanted_by_type[] = {
    [SWEEP_TYPE_WORD] = "a word",
    [SWEEP_TYPE_NAME] = "a name (letters, digits, '.', '_', '+', '-'; at most 64)",
    [SWEEP_TYPE_TEXT] = "text",
    [SWEEP_TYPE_COUNT] = "a whole number",
    [SWEEP_TYPE_DURATION] = "a duration like 5ms",
    [SWEEP_TYPE_RATE] = "a rate like 1000/s",
    [SWEEP_TYPE_FRACTION] = "a fraction like 0.1 or 10%",
    [SWEEP_TYPE_NUMBER] = "a number",
    [SWEEP_TYPE_FLAG] = "true or false",
    [SWEEP_TYPE_MAP] = "a map",
    [SWEEP_TYPE_PAIRS] = "a map of names to texts",
    [SWEEP_TYPE_CPUS] = "a list of CPUs such as 0,2-5",
};

static const char *wanted(const struct sweep_key *key)
{
    return key->wants ? key->wants : wanted_by_type[key->type];
}

static bool is_null(const struct sweep_node *node)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL"};
    if (node->kind != SWEEP_NODE_SCALAR || node->quoted)
        return false;
    for (size_t i = 0; i < sizeof nulls / sizeof nulls[0]; i++)
        if (strcmp(node->text, nulls[i]) == 0)
            return true;
    return false;
}

static bool refuse_kind(const struct reading *reading)
{
    static const char *const found[] = {
        [SWEEP_NODE_SCALAR] = NULL, [SWEEP_NODE_LIST] = "a list", [SWEEP_NODE_MAP] = "a map"};
    const struct sweep_node *node = reading->node;
    if (node->kind == SWEEP_NODE_BAD)
        return false;
    if (is_null(node))
        sweep_mistake(reading->mistakes, node->mark, "'%s' has no value", reading->subject);
    else if (node->kind == SWEEP_NODE_SCALAR)
        sweep_mistake(reading->mistakes, node->mark, "'%s' must be %s, not '%.40s'", reading->subject,
                      wanted(reading->key), node->text);
    else
        sweep_mistake(reading->mistakes, node->mark, "'%s' must be %s, not %s", reading->subject,
                      wanted(reading->key), found[node->kind]);
    return false;
}

static bool refuse_word(const struct reading *reading)
{
    char words[512];
    const char *text = reading->node->text;
    const struct sweep_word *known = reading->key->words;
    const char *nearest = sweep_mistakes_full(reading->mistakes) ? NULL : sweep_nearest_word(known, text);
    if (nearest)
        sweep_mistake(reading->mistakes, reading->node->mark, "'%s' cannot be '%.40s', did you mean '%s'?",
                      reading->subject, text, nearest);
    else
        sweep_mistake(reading->mistakes, reading->node->mark, "'%s' cannot be '%.40s', only %s",
                      reading->subject, text, sweep_list_words(known, words, sizeof words));
    return false;
}

static bool refuse_later_word(const struct reading *reading)
{
    char words[512];
    const struct sweep_key *key = reading->key;
    const char *supported = wanted_by_type[key->type];
    if (key->type == SWEEP_TYPE_WORD)
        supported = sweep_list_words(key->words, words, sizeof words);
    sweep_mistake(reading->mistakes, reading->node->mark, "'%s' cannot be '%.40s' yet, only %s",
                  reading->subject, reading->node->text, supported);
    return false;
}

static bool read_word(const struct reading *reading, struct sweep_value *ret)
{
    ret->word = sweep_find_word(reading->key->words, reading->node->text);
    if (ret->word && ret->word->later)
        return refuse_later_word(reading);
    if (!ret->word && !reading->key->open)
        return refuse_word(reading);
    ret->text = memory_text(reading->node->text);
    return true;
}

static bool read_name(const struct reading *reading, struct sweep_value *ret)
{
    const char *text = reading->node->text;
    size_t good = 0;
    while (isalnum((unsigned char)text[good]) || (text[good] && strchr("._+-", text[good])))
        good++;
    if (text[good] != '\0' || good == 0 || good > 64 || text[0] == '.' || text[0] == '-')
        return refuse_kind(reading);
    ret->text = memory_text(text);
    return true;
}

/* "0" or "2-5" at text; what follows it, or NULL. */
static const char *cpu_range(const char *text)
{
    size_t first = strspn(text, "0123456789");
    size_t last = first > 0 && text[first] == '-' ? strspn(text + first + 1, "0123456789") : 0;
    if (first == 0 || (text[first] == '-' && last == 0))
        return NULL;
    return text + first + (last > 0 ? 1 + last : 0);
}

static bool read_cpus(const struct reading *reading, struct sweep_value *ret)
{
    const char *text = reading->node->text, *at = text;
    ret->word = sweep_find_word(reading->key->words, text);
    if (!ret->word) {
        while ((at = cpu_range(at)) && *at == ',')
            at++;
        if (!at || *at != '\0')
            return isalpha((unsigned char)text[0]) ? refuse_word(reading) : refuse_kind(reading);
    }
    ret->text = memory_text(text);
    return true;
}

static bool read_text(const struct reading *reading, struct sweep_value *ret)
{
    if (reading->node->text[0] == '\0')
        return refuse_kind(reading);
    ret->text = memory_text(reading->node->text);
    return true;
}

static bool refuse_range(const struct reading *reading)
{
    char least[32];
    char most[32];
    const struct sweep_key *key = reading->key;
    char *(*format)(char *, size_t, int64_t) =
        key->type == SWEEP_TYPE_DURATION ? units_exact_duration : units_format_count;
    sweep_mistake(reading->mistakes, reading->node->mark, "'%s' must be %s to %s, not '%.40s'",
                  reading->subject, format(least, sizeof least, key->least),
                  format(most, sizeof most, key->most), reading->node->text);
    return false;
}

static bool read_count(const struct reading *reading, struct sweep_value *ret)
{
    const char *text = reading->node->text;
    const struct sweep_key *key = reading->key;
    ret->word = sweep_find_word(key->words, text);
    if (ret->word && ret->word->later)
        return refuse_later_word(reading);
    if (ret->word) {
        ret->text = memory_text(text);
        ret->integer = key->map ? SWEEP_LADDER_CLIENTS : 0;
        return true;
    }
    bool negative = text[0] == '-';
    if (units_parse_count(text + negative, &ret->integer, NULL) != 0) {
        bool digits_only = text[0] != '\0' && text[strspn(text, "0123456789")] == '\0';
        return digits_only ? refuse_range(reading) : refuse_kind(reading);
    }
    if (negative || ret->integer < key->least || ret->integer > key->most)
        return refuse_range(reading);
    return true;
}

static bool read_duration(const struct reading *reading, struct sweep_value *ret)
{
    const char *why = NULL;
    if (units_parse_duration(reading->node->text, &ret->integer, &why) != 0) {
        sweep_mistake(reading->mistakes, reading->node->mark, "'%s' is '%.40s': %s", reading->subject,
                      reading->node->text, why);
        return false;
    }
    if (ret->integer < reading->key->least || ret->integer > reading->key->most)
        return refuse_range(reading);
    return true;
}

/* [-]digits[.digits]; returns what follows, or NULL. */
static const char *decimal(const char *text, double *ret)
{
    const char *p = text + (text[0] == '-');
    size_t whole = strspn(p, "0123456789");
    const char *end = p + whole;
    if (*end == '.') {
        size_t part = strspn(end + 1, "0123456789");
        end += 1 + part;
        whole = part > 0 ? whole : 0;
    }
    if (whole == 0 || end - text > 40)
        return NULL;
    *ret = strtod(text, NULL);
    return end;
}

#define RATE_LEAST   0.001
#define RATE_MOST    1e7
#define FACTOR_LEAST 0.01
#define FACTOR_MOST  10.0

static bool check_rate(const struct reading *reading, const struct sweep_value *value)
{
    double least = value->is_factor ? FACTOR_LEAST : RATE_LEAST,
           most = value->is_factor ? FACTOR_MOST : RATE_MOST;
    if (value->number >= least && value->number <= most)
        return true;
    sweep_mistake(reading->mistakes, reading->node->mark, "'%s' must be %s, not '%.40s'", reading->subject,
                  value->is_factor ? "0.01x to 10x" : "0.001/s to 10M/s", reading->node->text);
    return false;
}

static bool read_rate(const struct reading *reading, struct sweep_value *ret)
{
    const char *why = NULL;
    const char *text = reading->node->text;
    const char *rest = decimal(text, &ret->number);
    if (rest && strcmp(rest, "x") == 0 && ret->number > 0) {
        ret->is_factor = true;
        return check_rate(reading, ret);
    }
    if (units_parse_rate(text, &ret->number, &why) == 0)
        return check_rate(reading, ret);
    sweep_mistake(reading->mistakes, reading->node->mark, "'%s' is '%.40s': %s", reading->subject, text, why);
    return false;
}

static bool read_fraction(const struct reading *reading, struct sweep_value *ret)
{
    const char *text = reading->node->text;
    const char *rest = decimal(text, &ret->number);
    if (rest && strcmp(rest, "%") == 0) {
        ret->number /= 100;
        rest++;
    }
    if (!rest || *rest != '\0')
        return refuse_kind(reading);
    if (ret->number > 0 && ret->number <= 1)
        return true;
    sweep_mistake(reading->mistakes, reading->node->mark, "'%s' must be above 0 and at most 1, not '%.40s'",
                  reading->subject, text);
    return false;
}

static bool read_number(const struct reading *reading, struct sweep_value *ret)
{
    int64_t ns;
    const char *rest = decimal(reading->node->text, &ret->number);
    if (rest && *rest == '\0')
        return true;
    if (units_parse_duration(reading->node->text, &ns, NULL) != 0)
        return refuse_kind(reading);
    ret->number = (double)ns;
    return true;
}

static bool read_flag(const struct reading *reading, struct sweep_value *ret)
{
    ret->integer = strcmp(reading->node->text, "true") == 0;
    return ret->integer || strcmp(reading->node->text, "false") == 0 || refuse_kind(reading);
}

#define MOST_PAIRS 64

static bool read_pairs(const struct reading *reading, struct sweep_value *ret)
{
    static const struct sweep_key name_key = {.name = "name", .type = SWEEP_TYPE_NAME};
    const struct sweep_node *node = reading->node;
    if (node->kind != SWEEP_NODE_MAP || node->count == 0)
        return refuse_kind(reading);
    bool good = node->count <= MOST_PAIRS;
    if (!good)
        sweep_mistake(reading->mistakes, node->mark, "'%s' has %zu names: at most %d", reading->subject,
                      node->count, MOST_PAIRS);
    for (size_t i = 0; i < node->count && i < MOST_PAIRS; i++) {
        const struct sweep_item *item = &node->items[i];
        struct sweep_node name = {.kind = SWEEP_NODE_SCALAR, .mark = item->key_mark, .text = item->key};
        struct sweep_value as_name = {0};
        struct reading key = {&name_key, reading->subject, &name, reading->mistakes};
        struct reading value = {reading->key, item->key, item->value, reading->mistakes};
        good = read_name(&key, &as_name) && good;
        free(as_name.text);
        if (item->value->kind != SWEEP_NODE_SCALAR || is_null(item->value) || item->value->text[0] == '\0')
            good = refuse_kind(&value);
    }
    if (!good)
        return false;
    ret->pairs.at = memory_zeroed(node->count, sizeof *ret->pairs.at);
    for (size_t i = 0; i < node->count; i++)
        ret->pairs.at[ret->pairs.count++] = (struct wire_pair){
            .name = memory_text(node->items[i].key), .value = memory_text(node->items[i].value->text)};
    return true;
}

static bool read_map_value(const struct reading *reading, struct sweep_value *ret)
{
    bool scalar = reading->node->kind == SWEEP_NODE_SCALAR;
    bool shorthand = reading->key->map->shorthand < reading->key->map->count;
    if (reading->node->kind == SWEEP_NODE_LIST || (scalar && !shorthand))
        return refuse_kind(reading);
    ret->map = read_map(reading, reading->key->map);
    return ret->map != NULL;
}

static bool (*const readers[])(const struct reading *, struct sweep_value *) = {
    [SWEEP_TYPE_WORD] = read_word,         [SWEEP_TYPE_NAME] = read_name,
    [SWEEP_TYPE_TEXT] = read_text,         [SWEEP_TYPE_COUNT] = read_count,
    [SWEEP_TYPE_DURATION] = read_duration, [SWEEP_TYPE_RATE] = read_rate,
    [SWEEP_TYPE_FRACTION] = read_fraction, [SWEEP_TYPE_NUMBER] = read_number,
    [SWEEP_TYPE_FLAG] = read_flag,         [SWEEP_TYPE_MAP] = read_map_value,
    [SWEEP_TYPE_PAIRS] = read_pairs,       [SWEEP_TYPE_CPUS] = read_cpus,
};

static void release_value(struct sweep_value *value)
{
    free(value->text);
    free_map(value->map);
    for (size_t i = 0; i < value->pairs.count; i++) {
        free(value->pairs.at[i].name);
        free(value->pairs.at[i].value);
    }
    free(value->pairs.at);
}

/* {ladder: N}: what the first word says, with its limit. */
static bool read_count_map(const struct reading *reading, struct sweep_value *ret)
{
    ret->map = read_map(reading, reading->key->map);
    if (!ret->map)
        return false;
    ret->word = &reading->key->words[0];
    ret->integer = ret->map->keys[0].at[0].integer;
    return true;
}

static bool read_value(const struct reading *reading, struct sweep_value *ret)
{
    const struct sweep_node *node = reading->node;
    enum sweep_type type = reading->key->type;
    struct sweep_value value = {.mark = node->mark};
    bool structured = type == SWEEP_TYPE_MAP || type == SWEEP_TYPE_PAIRS;
    bool count_map = type == SWEEP_TYPE_COUNT && reading->key->map && node->kind == SWEEP_NODE_MAP;
    if (count_map && !read_count_map(reading, &value))
        return false;
    if (count_map) {
        *ret = value;
        return true;
    }
    if (node->kind == SWEEP_NODE_BAD || is_null(node) || (node->kind != SWEEP_NODE_SCALAR && !structured))
        return refuse_kind(reading);
    if (!readers[type](reading, &value)) {
        release_value(&value);
        return false;
    }
    *ret = value;
    return true;
}

/* All values of a key, or none when one of them is wrong. */
static bool read_values(const struct reading *reading, struct sweep_values *ret)
{
    const struct sweep_node *node = reading->node;
    bool good = true;
    if (node->kind != SWEEP_NODE_LIST || !reading->key->list) {
        ret->at = memory_zeroed(1, sizeof *ret->at);
        good = read_value(reading, &ret->at[0]);
        ret->count = good ? 1 : 0;
        return good;
    }
    if (node->count == 0) {
        sweep_mistake(reading->mistakes, node->mark, "'%s' is an empty list", reading->subject);
        return false;
    }
    ret->at = memory_zeroed(node->count, sizeof *ret->at);
    for (size_t i = 0; i < node->count; i++) {
        struct reading item = *reading;
        item.node = node->items[i].value;
        if (read_value(&item, &ret->at[ret->count]))
            ret->count++;
        else
            good = false;
    }
    return good;
}

static void refuse_key(const struct sweep_map_type *type, const struct sweep_item *item,
                       struct sweep_mistakes *mistakes)
{
    const char *nearest = sweep_mistakes_full(mistakes) ? NULL : sweep_nearest_key(type, item->key);
    if (nearest)
        sweep_mistake(mistakes, item->key_mark, "unknown key '%.40s', did you mean '%s'?", item->key,
                      nearest);
    else if (type == &sweep_entry_type && sweep_find_key(&sweep_top_type, item->key) < sweep_top_type.count)
        sweep_mistake(mistakes, item->key_mark, "'%s' stands at the top of a sweep, not in %s", item->key,
                      type->title);
    else
        sweep_mistake(mistakes, item->key_mark, "unknown key '%.40s' in %s", item->key, type->title);
}

static bool read_item(const struct sweep_item *item, struct sweep_map *map, struct sweep_mistakes *mistakes)
{
    size_t number = sweep_find_key(map->type, item->key);
    if (number == map->type->count) {
        refuse_key(map->type, item, mistakes);
        return false;
    }
    const struct sweep_key *key = &map->type->keys[number];
    struct sweep_values *values = &map->keys[number];
    if (values->given) {
        sweep_mistake(mistakes, item->key_mark, "duplicate key '%s' (first at %zu:%zu)", key->name,
                      values->mark.line, values->mark.column);
        return false;
    }
    values->given = true;
    values->mark = item->key_mark;
    if (key->later) {
        sweep_mistake(mistakes, item->key_mark, "'%s' is not supported yet", key->name);
        return false;
    }
    struct reading reading = {key, key->name, item->value, mistakes};
    return read_values(&reading, values);
}

static bool read_items(const struct reading *reading, struct sweep_map *map)
{
    const struct sweep_node *node = reading->node;
    bool good = true;
    if (node->kind == SWEEP_NODE_SCALAR) {
        size_t bare = map->type->shorthand;
        struct reading inner = {&map->type->keys[bare], reading->subject, node, reading->mistakes};
        map->keys[bare].given = true;
        map->keys[bare].mark = node->mark;
        return read_values(&inner, &map->keys[bare]);
    }
    for (size_t i = 0; i < node->count; i++)
        good = read_item(&node->items[i], map, reading->mistakes) && good;
    return good;
}

static void fill_default(const struct sweep_key *key, struct sweep_values *values,
                         struct sweep_mistakes *mistakes)
{
    struct sweep_node *node = sweep_tree_parse(NULL, key->fallback, strlen(key->fallback), mistakes);
    struct reading reading = {key, key->name, node, mistakes};
    if (node)
        (void)read_values(&reading, values);
    sweep_tree_free(node);
}

static bool fill_map(struct sweep_map *map, struct sweep_mistakes *mistakes)
{
    bool good = true;
    for (size_t i = 0; i < map->type->count; i++) {
        const struct sweep_key *key = &map->type->keys[i];
        if (map->keys[i].given)
            continue;
        if (key->required) {
            sweep_mistake(mistakes, map->mark, "%s needs '%s'", map->type->title, key->name);
            good = false;
        }
        /* what an entry leaves out comes from the top */
        if (key->fallback && map->type != &sweep_entry_type)
            fill_default(key, &map->keys[i], mistakes);
    }
    return good;
}

/* The map, or NULL when something in it is wrong. */
static struct sweep_map *read_map(const struct reading *reading, const struct sweep_map_type *type)
{
    struct sweep_map *map = memory_zeroed(1, sizeof *map);
    size_t before = reading->mistakes->count;
    map->type = type;
    map->mark = reading->node->mark;
    map->keys = memory_zeroed(type->count, sizeof *map->keys);
    bool good = read_items(reading, map);
    good = fill_map(map, reading->mistakes) && good;
    map->flawed = !good;
    if (good)
        sweep_check_map(map, reading->mistakes);
    /* the top and its entries are looked at further: they may hold mistakes of other kinds */
    bool stays = type == &sweep_top_type || type == &sweep_entry_type;
    if (stays || (good && reading->mistakes->count == before))
        return map;
    free_map(map);
    return NULL;
}

static void free_map(struct sweep_map *map)
{
    if (!map)
        return;
    for (size_t i = 0; i < map->type->count; i++) {
        for (size_t j = 0; j < map->keys[i].count; j++)
            release_value(&map->keys[i].at[j]);
        free(map->keys[i].at);
    }
    free(map->keys);
    free(map);
}

static const char *keep_source(struct sweep *sweep, char *source)
{
    sweep->sources = memory_resized(sweep->sources, sweep->source_count + 1, sizeof *sweep->sources);
    sweep->sources[sweep->source_count++] = source;
    return source;
}

/* A setting reaches every entry: what they say of the key gives way. */
static void remove_from_entries(struct sweep_node *root, const char *key)
{
    struct sweep_item *matrix = sweep_tree_find(root, "matrix");
    if (!matrix)
        return;
    sweep_tree_remove(matrix->value, key); /* one entry without a list */
    for (size_t i = 0; matrix->value->kind == SWEEP_NODE_LIST && i < matrix->value->count; i++)
        sweep_tree_remove(matrix->value->items[i].value, key);
}

static void apply_setting(struct sweep *sweep, struct sweep_node *root, const char *setting,
                          struct sweep_mistakes *mistakes)
{
    const char *equals = strchr(setting, '=');
    if (!equals || equals == setting) {
        sweep_mistake(mistakes, (struct sweep_mark){.source = "--set"}, "'%.40s' is not KEY=VALUE", setting);
        return;
    }
    scoped_free char *key = strndup(setting, (size_t)(equals - setting));
    const char *source = keep_source(sweep, memory_format("--set %.40s", key));
    struct sweep_mark whole = {.source = source};
    struct sweep_item item = {.key = key, .key_mark = whole};
    size_t number = sweep_find_key(&sweep_top_type, key);
    if (number == sweep_top_type.count) {
        refuse_key(&sweep_top_type, &item, mistakes);
        return;
    }
    struct sweep_node *value = sweep_tree_parse(source, equals + 1, strlen(equals + 1), mistakes);
    if (!value || root->kind != SWEEP_NODE_MAP) {
        sweep_tree_free(value);
        return;
    }
    value->mark = whole;
    if (number < SWEEP_CELL_KEYS)
        remove_from_entries(root, key);
    sweep_tree_put(root, key, whole, value);
}

/* "dir/mine.yaml" -> "mine" where that is a name. */
static char *name_of_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    scoped_free char *stem = memory_text(slash ? slash + 1 : path);
    char *dot = strrchr(stem, '.');
    if (dot && dot != stem)
        *dot = '\0';
    struct sweep_mistakes unheard = {0};
    struct sweep_node node = {.kind = SWEEP_NODE_SCALAR, .text = stem};
    struct sweep_value value = {0};
    struct reading reading = {&sweep_top_type.keys[SWEEP_NAME], "name", &node, &unheard};
    bool good = read_name(&reading, &value);
    sweep_mistakes_release(&unheard);
    return good ? value.text : memory_text("sweep");
}

static void take_facts(struct sweep *sweep, const char *source)
{
    const struct sweep_value *name = sweep_get(sweep->top, SWEEP_NAME);
    const struct sweep_value *seed = sweep_get(sweep->top, SWEEP_SEED);
    if (!name)
        sweep->given_name = name_of_file(source);
    sweep->name = name ? name->text : sweep->given_name;
    sweep->seed = seed ? seed->integer : 0;
    const struct sweep_value *placement = sweep_get(sweep->top, SWEEP_PLACEMENT);
    bool usual = !placement || strcmp(placement->text, "compact") == 0;
    sweep->placement = usual ? NULL : placement->text;
    sweep->thresholds = &sweep->top->keys[SWEEP_EXPECT];
}

static void read_root(struct sweep *sweep, const struct sweep_node *root, struct sweep_mistakes *mistakes)
{
    static const struct sweep_key sweep_key = {
        .name = "sweep", .type = SWEEP_TYPE_MAP, .wants = "a map of keys", .map = &sweep_top_type};
    struct reading reading = {&sweep_key, "sweep", root, mistakes};
    if (root->kind == SWEEP_NODE_MAP)
        sweep->top = read_map(&reading, &sweep_top_type);
    else if (root->kind != SWEEP_NODE_BAD)
        sweep_mistake(mistakes, root->mark, "a sweep must be a map of keys");
}

int sweep_parse(const char *name, const char *text, size_t size, struct sweep_settings settings,
                struct sweep **ret, struct sweep_mistakes *mistakes)
{
    size_t before = mistakes->count;
    struct sweep *sweep = memory_zeroed(1, sizeof *sweep);
    const char *source = keep_source(sweep, memory_text(name));
    struct sweep_node *root = sweep_tree_parse(source, text, size, mistakes);
    for (size_t i = 0; root && i < settings.count; i++)
        apply_setting(sweep, root, settings.at[i], mistakes);
    if (root)
        read_root(sweep, root, mistakes);
    sweep_tree_free(root);
    if (sweep->top) {
        take_facts(sweep, source);
        (void)sweep_check(sweep, settings.any_job, mistakes);
    }
    if (mistakes->count > before || !sweep->top) {
        sweep_free(sweep);
        return -1;
    }
    sweep->text = memory_zeroed(size + 1, 1);
    memcpy(sweep->text, text, size);
    sweep_canonicalise(sweep);
    *ret = sweep;
    return 0;
}

/* At most one byte more than is allowed: enough to see that it is too large. */
static ssize_t read_all(int fd, char *buf, size_t size)
{
    size_t used = 0;
    while (used < size) {
        ssize_t n = read(fd, buf + used, size - used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        used += (size_t)n;
    }
    return (ssize_t)used;
}

int sweep_load(const char *path, struct sweep_settings settings, struct sweep **ret,
               struct sweep_mistakes *mistakes)
{
    if (!path)
        return sweep_parse("lab (built in)", sweep_lab_text, strlen(sweep_lab_text), settings, ret, mistakes);
    bool is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "stdin" : path;
    struct sweep_mark whole = {.source = name};
    int fd = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    size_t room = SWEEP_MAX_BYTES + 1;
    scoped_free char *text = memory_zeroed(room, 1);
    ssize_t size = fd < 0 ? -1 : read_all(fd, text, room);
    if (size < 0)
        sweep_mistake(mistakes, whole, "cannot be read: %s", strerror(errno));
    if (fd >= 0 && !is_stdin)
        (void)close(fd);
    size_t mark = size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* some editors write one */
    return size < 0 ? -1 : sweep_parse(name, text + mark, (size_t)size - mark, settings, ret, mistakes);
}

void sweep_free(struct sweep *sweep)
{
    if (!sweep)
        return;
    free_map(sweep->top);
    for (size_t i = 0; i < sweep->source_count; i++)
        free(sweep->sources[i]);
    free(sweep->sources);
    free(sweep->entries);
    free(sweep->given_name);
    free(sweep->text);
    free(sweep->canonical);
    free(sweep);
}

const struct sweep_value *sweep_get(const struct sweep_map *map, size_t key)
{
    return map->keys[key].count > 0 ? &map->keys[key].at[0] : NULL;
}
