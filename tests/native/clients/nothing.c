/* A library that does nothing; what it is called is what matters. */
int partage_nothing;
