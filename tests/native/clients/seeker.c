/* A program that is linked with the driver, and with a library that looks for what comes behind it. */
int take(const char *way);

int main(void) { return take("next"); }
