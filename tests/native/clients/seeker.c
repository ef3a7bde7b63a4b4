/* A program that is linked with the driver, and with a library that looks for what comes behind it.
 * What was taken is kept until the input ends. */
#include <stdio.h>

int take(const char *way);

int main(void)
{
    int result = take("next");
    fflush(stdout);
    getchar();
    return result;
}
