"""Parts of the Autopilot page: pause, resume and approval with their confirmation, and the editor of policies."""
