"""The file of --command-config: Java's settings, as librdkafka takes them."""

import pytest

from pyspark_log.kafka import properties
from pyspark_log_storage.errors import InvalidOption

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def test_a_file_of_properties_is_read_as_java_reads_it():
    text = "# comment\n! comment\n\n a = 1 \nb:2\nc 3\nd=x\\\n   y\ne=a\\=b\\\\c\nf\\:g=\\u0041\nempty=\n"
    found = {"a": "1", "b": "2", "c": "3", "d": "xy", "e": "a=b\\c", "f:g": "A", "empty": ""}
    assert properties.parse(text) == found


@pytest.mark.parametrize("sign", ["\x0b", "\x1c", "\x1d", "\x1e", "\x85", "\xa0", "\u2028", "\u2029"])
def test_a_value_keeps_what_only_python_takes_for_a_blank_or_the_end_of_a_line(sign):
    text = f"sasl.password={sign}a{sign}b{sign}\nc=1"
    assert properties.parse(text) == {"sasl.password": f"{sign}a{sign}b{sign}", "c": "1"}


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_lines_end_as_in_java_and_a_form_feed_is_a_blank(end):
    text = f"\f# a page{end}\fa\f=\f1{end}{end}b=x\\{end}\f y\fz"
    assert properties.parse(text) == {"a": "1", "b": "xy\fz"}


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


def test_pem_files_and_pkcs12_keys_are_translated():
    given = {
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.password": "x",
        "ssl.keystore.location": "/key.p12",
        "ssl.keystore.password": "y",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert properties.translated(given) == {
        "ssl.ca.location": "/ca.pem",
        "ssl.keystore.location": "/key.p12",
        "ssl.keystore.password": "y",
        "ssl.endpoint.identification.algorithm": "none",
    }
    both = {"ssl.certificate.location": "/both", "ssl.key.location": "/both"}
    assert properties.translated({"ssl.keystore.location": "/both", "ssl.keystore.type": "pem"}) == both


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


@pytest.mark.parametrize("name", properties.OWN)
def test_what_the_command_chooses_itself_is_refused(name):
    with pytest.raises(InvalidOption, match="remove it"):
        properties.translated({name: "x"})


def test_secrets_are_taken_out_of_messages():
    settings = {"sasl.password": "geheim", "ssl.key.password": "geheimer", "sasl.username": "u", "client.rack": "r"}
    assert properties.without_secrets("u r geheim geheimer", settings) == "u r *** ***"


def test_a_secret_without_a_value_leaves_messages_as_they_are():
    assert properties.without_secrets("no answer", {"ssl.key.password": ""}) == "no answer"
