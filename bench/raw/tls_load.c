/* The load of load.c through TLS; needs OpenSSL's headers. */
#define WITH_TLS
#include "load.c"
