"""The paper's experiments for any model: tasks with and without ELMo in many variants, and one page of it all."""
