/* Names of error codes; the tables are generated from the headers and end with a row of zeros. */
#pragma once

struct error_name {
    int code;
    const char *name, *words;
};

static inline const struct error_name *error_find(const struct error_name *table, int code)
{
    for (; table->name; table++)
        if (table->code == code)
            return table;
    return 0;
}
