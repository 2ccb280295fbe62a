"""What tests of Windlass itself and of programs that use it need."""
