"""Which threads share a log: none, since a log's journals must not be used by two at once."""

from concurrent.futures import ThreadPoolExecutor

from pyspark_log.opening import forget_logs, open_log


def test_each_thread_has_a_log_of_its_own_until_it_forgets_it(tmp_path):
    log = open_log(str(tmp_path), create=True)
    assert open_log(str(tmp_path)) is log
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(open_log, str(tmp_path)).result() is not log
    forget_logs()
    assert open_log(str(tmp_path)) is not log
