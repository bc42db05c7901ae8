"""Which threads share a log: none, since a log's journals must not be used by two at once."""

from concurrent.futures import ThreadPoolExecutor

from pyspark_log.opening import forget_logs, open_log


def test_a_thread_keeps_its_log_until_it_forgets_it(tmp_path):
    log = open_log(str(tmp_path), create=True)
    assert open_log(str(tmp_path)) is log
    forget_logs()
    assert open_log(str(tmp_path)) is not log


def test_two_threads_have_a_log_each(tmp_path):
    log = open_log(str(tmp_path), create=True)
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(open_log, str(tmp_path)).result() is not log
