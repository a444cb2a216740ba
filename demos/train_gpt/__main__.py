from demos.train_gpt.train import main, ranks

ranks.leave(main())
