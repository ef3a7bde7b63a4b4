/* The program's environment, changed so that nobody who reads it meanwhile is harmed.
 *
 * setenv may free the list that another thread is reading. So a new list is made, which is never
 * freed, and put in place of the old one. */
#pragma once
#include <stdbool.h>

/* A list with that "NAME=value" in place of what it had; NULL: there is no memory for it. */
char **environment_with(char *variable);
/* For good. Nothing happens where there is no memory for it. */
void environment_set(const char *name, const char *value);
