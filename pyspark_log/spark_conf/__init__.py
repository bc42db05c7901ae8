"""Settings of Spark that suit this source and sink: profiles, and `configure`, which sets one for a session."""
