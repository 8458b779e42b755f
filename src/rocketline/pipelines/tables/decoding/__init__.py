"""Bodies in Avro and Protobuf as columns: schemas from files or a registry, and a reason for each body that does not fit.

One interface: `Decoding.columns()` on the driver gives the columns, `Decoding.decoder()` on a worker makes rows of bodies.
"""
