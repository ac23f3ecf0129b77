"""Messages as the converters of Kafka Connect write them, in JSON and in Avro: values by name, and what schemas say."""
