#include "coordinator/store/rounds_csv.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static void put_quoted(FILE *out, const char *text)
{
    (void)fputc('"', out);
    for (; text && *text; text++) {
        unsigned char byte = (unsigned char)*text;
        if (byte == '"')
            (void)fputc('"', out);
        (void)fputc(byte < ' ' || byte == 0x7f ? '?' : byte, out);
    }
    (void)fputc('"', out);
}

static void put_row(FILE *out, const struct store_cell *cell, const struct store_round *round)
{
    const char *texts[] = {cell->id, cell->runtime, cell->spec.arm, cell->spec.job};
    const int64_t keys[] = {cell->spec.fanout, cell->spec.delay_ns, cell->spec.clients, cell->cores,
                            round->worker};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        (void)fputs(i ? "," : "", out);
        put_quoted(out, texts[i]);
    }
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        (void)fprintf(out, ",%" PRId64, keys[i]);
    const int64_t values[] = {
#define X(name) round->raw.name,
        WIRE_ROUND_INTEGERS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        (void)fputc(',', out);
        if (values[i] != WIRE_NULL)
            (void)fprintf(out, "%" PRId64, values[i]);
    }
    (void)fputc(',', out);
    if (round->raw.error)
        put_quoted(out, round->raw.error);
    (void)fputc('\n', out);
}

static int write_cell(struct store *store, const struct store_cell *cell, FILE *out, struct error *err)
{
    struct store_rounds *rounds;
    if (store_load_rounds(store, cell->number, &rounds, err) < 0)
        return -1;
    for (size_t i = 0; i < rounds->count; i++)
        put_row(out, cell, &rounds->at[i]);
    store_rounds_free(rounds);
    return 0;
}

int rounds_csv_write(struct store *store, FILE *out, struct error *err)
{
    struct store_run *run;
    int status = store_load(store, &run, err);
    if (status < 0)
        return -1;
    (void)fputs("id,runtime,arm,job,fanout,delay_ns,clients,cores,worker", out);
#define X(name) (void)fputs("," #name, out);
    WIRE_ROUND_INTEGERS(X)
#undef X
    (void)fputs(",error\n", out);
    for (size_t i = 0; i < run->cell_count && status == 0; i++)
        status = write_cell(store, &run->cells[i], out, err);
    store_run_free(run);
    if (status == 0 && (fflush(out) != 0 || ferror(out)))
        return error_set(err, ERROR_INTERNAL, "cannot write the rounds: %s", strerror(errno));
    return status;
}
