#!/bin/sh
# Makes the certificates of this folder anew: an authority, servers for this machine and for another one, a client.
set -e
cd "$(dirname "$0")"
work=$(mktemp -d)
new_key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$work/$1.key"; }
signed() { # name, subject alternative names
    new_key "$1"
    openssl req -new -key "$work/$1.key" -subj "/CN=rocketline test $1" -out "$work/$1.csr"
    printf 'subjectAltName=%s\nbasicConstraints=CA:FALSE\n' "$2" >"$work/$1.ext"
    openssl x509 -req -in "$work/$1.csr" -CA "$work/ca.crt" -CAkey "$work/ca.key" -CAcreateserial -days 36500 \
        -extfile "$work/$1.ext" -out "$work/$1.crt"
}
new_key ca
openssl req -x509 -new -key "$work/ca.key" -subj "/CN=rocketline test authority" -days 36500 \
    -addext "keyUsage=critical,keyCertSign,cRLSign" -out "$work/ca.crt"
signed server "IP:127.0.0.1,IP:::1,DNS:localhost"
signed elsewhere "DNS:elsewhere.example"
signed client "DNS:client.example"
cp "$work/ca.crt" ca.pem
for name in server elsewhere; do
    cp "$work/$name.crt" $name.pem
    cp "$work/$name.key" $name.key
done
cp "$work/client.crt" client.pem
openssl pkcs8 -topk8 -in "$work/client.key" -passout pass:rocketline -out client.key
rm -r "$work"
