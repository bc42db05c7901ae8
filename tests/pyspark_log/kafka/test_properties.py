"""The file of --command-config: Java's settings, as librdkafka takes them."""

import pytest

from pyspark_log.kafka import properties
from pyspark_log_storage.errors import InvalidOption

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def test_a_file_of_properties_is_read_as_java_reads_it(tmp_path):
    text = "# comment\n! comment\n\n a = 1 \nb:2\nc 3\nd=x\\\n   y\ne=a\\=b\\\\c\nf\\:g=\\u0041\nempty=\n"
    found = {"a": "1", "b": "2", "c": "3", "d": "xy", "e": "a=b\\c", "f:g": "A", "empty": ""}
    assert properties.parse(text) == found
    file = tmp_path / "client.properties"
    file.write_text("sasl.username=u\n", encoding="utf-8-sig")  # as editors of Windows save it
    assert properties.read(file) == {"sasl.username": "u"}


def test_a_login_is_taken_from_the_jaas_configuration():
    found = properties.translated({"sasl.jaas.config": f'{PLAIN} username="u" password="p\\"q";'})
    assert found == {"sasl.username": "u", "sasl.password": 'p"q'}


@pytest.mark.parametrize(
    "jaas", ['com.sun.security.auth.module.Krb5LoginModule required useKeyTab="true";', f'{PLAIN} username="u";']
)
def test_a_login_that_only_java_can_use_is_refused_without_showing_it(jaas):
    with pytest.raises(InvalidOption, match=r"sasl\.jaas\.config.*only Java") as refused:
        properties.translated({"sasl.jaas.config": jaas})
    assert jaas not in refused.value.message


@pytest.mark.parametrize(
    "given",
    [
        {"ssl.truststore.location": "/trust.jks"},
        {"ssl.truststore.location": "/trust", "ssl.truststore.type": "PKCS12"},
        {"ssl.keystore.location": "/key.jks"},
    ],
)
def test_a_store_that_only_java_can_read_is_refused_with_the_way_to_convert_it(given):
    with pytest.raises(InvalidOption, match="openssl pkcs12"):
        properties.translated(given)


def test_secrets_are_taken_out_of_messages():
    settings = {"sasl.password": "geheim", "ssl.key.password": "geheimer", "sasl.username": "u", "client.rack": "r"}
    assert properties.without_secrets("u r geheim geheimer", settings) == "u r *** ***"


def test_a_secret_without_a_value_leaves_messages_as_they_are():
    assert properties.without_secrets("no answer", {"ssl.key.password": ""}) == "no answer"
