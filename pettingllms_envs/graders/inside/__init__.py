"""What runs in the sandbox's processes, where `pettingllms_envs` cannot be imported: files of their own."""
